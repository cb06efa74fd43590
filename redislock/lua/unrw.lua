-- Ends a read or a write hold, or gives up a place for it, and lets the next ones in.
-- KEYS 1 lock, 2 line, 3 due, 4 token, 5 held, 6 hold (the key of a read hold)
-- ARGV 1 id, 2 its token or "", 3 last token used or "", 4 ms to keep or "", 5 channel, 6 grace,
--      7 "1" to leave a place, 8 ms to refuse requests of id that are still on their way or "",
--      9 "1" for a write hold, 10 what the keys of read holds begin with
-- Replies 1 if the hold was there, else 0.
local lock, line, due, token, held, hold = unpack(KEYS)
local id, channel, grace, write, base = ARGV[1], ARGV[5], tonumber(ARGV[6]), ARGV[9] == '1', ARGV[10]
local keep = ARGV[4] ~= '' and ARGV[4]
local me = write and id .. ':write' or id
local time, counter = redis.call('TIME'), nil
--@ token
--@ tell
--@ line

local function writes(m) return string.sub(m, -6) == ':write' end

-- pass lets the first in line come: a writer, or all readers in front of the first writer.
local function pass(payload)
  local called
  local n = 0
  for _, m in ipairs(redis.call('ZRANGE', line, 0, -1)) do
    if alive(m) <= ms then
      drop(m)
    elseif called and (writes(m) or writes(called)) then
      n = n + 1
      wake(m, n * grace)
      if n == behind then return end
    elseif not called and let(channel, payload, m) then
      return
    elseif call(m) then
      called = m
    end
  end
  if not called then tell(channel, payload) end
end

-- hint lets the first in line look at who holds the lock now.
local function hint()
  local m = redis.call('ZRANGE', line, 0, 0)[1]
  if m then wake(m) end
end

local function holdkey(owner, i) return base .. ':' .. owner .. ':rwlock_timeout:' .. i end

local count = redis.pcall('HGET', lock, me)
if type(count) == 'table' then count = false end
if count and ARGV[2] ~= '' then
  local first
  if write then
    first = select(3, recorded())
  else
    first = redis.call('HGET', held, id)
  end
  if first and first ~= ARGV[2] then return 0 end
end
if ARGV[7] == '1' then drop(me) end
if ARGV[8] ~= '' then refuse(id, ARGV[8]) end
if not count then
  if ARGV[7] == '1' and redis.call('EXISTS', line) == 1 then
    local mode = redis.call('HGET', lock, 'mode')
    if not mode then
      pass('0')
    elseif mode == 'read' then
      hint()
    end
  end
  return 0
end

if write then
  if ARGV[3] ~= '' then
    local last, sign, first = recorded()
    if first and sign == ' ' and not above(first, ARGV[3]) and above(last, ARGV[3]) then record(ARGV[3], ' ', first) end
  end
  redis.call('HDEL', lock, me)
  if keep then
    redis.call('HSET', lock, id .. ':kept:write', '1')
    redis.call('PEXPIRE', lock, keep)
    hint()
    tell(channel, '1')
  elseif redis.call('HLEN', lock) > 1 then
    redis.call('HSET', lock, 'mode', 'read')
    pass('1')
  else
    redis.call('DEL', lock)
    pass('1')
  end
  return 1
end

local live = 0
for i = 1, math.min(tonumber(count) or 1, 1000) do
  live = live + redis.call('DEL', i == 1 and hold or holdkey(id, i))
end
redis.call('HDEL', lock, id)
redis.call('HDEL', held, id)
if keep and live > 0 then
  redis.call('HSET', lock, id .. ':kept', '1')
  redis.call('SET', holdkey(id .. ':kept', 1), '1', 'PX', keep)
end
-- The lock lives as long as the longest of the other read holds.
local most = 0
local all = redis.call('HGETALL', lock)
for i = 1, #all, 2 do
  for j = 1, math.min(tonumber(all[i + 1]) or 0, 1000) do
    most = math.max(most, redis.call('PTTL', holdkey(all[i], j)))
  end
end
if most > 0 then
  redis.call('PEXPIRE', lock, most)
  hint()
elseif redis.call('HGET', lock, 'mode') ~= 'write' then
  redis.call('DEL', lock, held)
  pass('0')
end
return live > 0 and 1 or 0
