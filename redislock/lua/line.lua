-- The line is pawl's own queue of places that wait for a name: a sorted set by arrival, with a second one that says until
-- when each counts as alive. Who is asked to come ("called") is alive for a grace only; then its turn is over.

local ms = time[1] * 1000 + math.floor(time[2] / 1000)

local function process(m) return string.match(m, '^[^:]*') end

local function drop(m)
  redis.call('ZREM', line, m)
  redis.call('ZREM', due, m)
end

local function alive(m) return tonumber(redis.call('ZSCORE', due, m) or '0') end

-- wake tells the process of m to look, at once or after some ms. It answers whether that process listens; in a cluster it
-- may do so at any node, and is taken to do so. Those behind it are then told to look later (see behind), since it may be
-- dead.
local function wake(m, later)
  local n = publish('pawl_wake:' .. process(m), later and m .. ' ' .. later or m)
  return not n or n > 0 or cluster
end

-- listens reports whether the process of m listens; true if the user may not know.
local function listens(m)
  local n = redis.pcall('PUBSUB', 'NUMSUB', 'pawl_wake:' .. process(m))
  return n.err or n[2] > 0
end

local behind = cluster and 8 or 1

local function call(m)
  if not wake(m) then
    drop(m)
    return false
  end
  redis.call('ZADD', due, ms + grace, m)
  return true
end

-- join answers 1 if me was not in line before.
local function join(me, beat)
  local new = redis.call('ZADD', line, 'NX', time[1] * 1000000 + time[2], me)
  redis.call('ZADD', due, ms + beat, me)
  redis.call('PEXPIRE', line, 2 * beat)
  if redis.call('PTTL', due) < 2 * beat then redis.call('PEXPIRE', due, 2 * beat) end
  return new
end

-- want tells the process of a holder that others wait, if it took more than one token: then it may keep the hold for others of
-- its own.
local function want(owner)
  local last, _, first = recorded()
  if last and last ~= first then publish('pawl_wake:' .. process(owner), '!' .. owner) end
end

local function ahead(me) return redis.call('ZRANK', line, me) or redis.call('ZCARD', line) end

-- refuse keeps a request of id that is still on its way from having any effect.
local function refuse(id, time)
  redis.call('ZREMRANGEBYSCORE', due, '-inf', ms)
  redis.call('ZADD', due, ms + time, '!' .. id)
  if redis.call('PTTL', due) < tonumber(time) then redis.call('PEXPIRE', due, time) end
end

-- turn is how long, in ms, the line stands back when it is the turn of clients that do not know it; "*" marks that.
local turn = 10

local function others()
  local till = alive('*')
  return till > ms and till or nil
end

-- stranger reports whether somebody listens on channel who does not just watch.
local function stranger(channel)
  local n = redis.pcall('PUBSUB', 'NUMSUB', channel, 'pawl_watch:' .. string.sub(line, 11))
  local sharded = cluster and redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)
  return not n.err and n[2] > n[4] or sharded and not sharded.err and sharded[2] > 0
end

-- let gives the turn to clients that do not know the line: to those that listen on channel, one release in four.
local function let(channel, payload, front)
  if time[2] % 4 ~= 0 or not stranger(channel) or not wake(front, turn) then return false end
  redis.call('ZADD', due, ms + turn, '*')
  tell(channel, payload)
  return true
end
