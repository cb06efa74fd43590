-- Takes permits of an expiring semaphore, or gets in line for them.
-- KEYS 1 free permits, 2 set of permits by expiry, 3 line, 4 due, 5 other, 6 token, 7 held, 8 permits of pawl
-- ARGV 1 id, 2 ttl, 3 "1" to wait, 4 grace, 5 beat, 6 permits, 7 limit, 8 channel, 9 … the names of the permits
-- Replies as lock.lua does; {"mismatch", "permits", limit} for another limit.
local sem, set, line, due, other, token, held, ours = unpack(KEYS)
local id, ttl, k, limit, channel = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local grace, beat, counter = tonumber(ARGV[4]), tonumber(ARGV[5]), nil
local me = k > 1 and id .. '*' .. k or id
local time = redis.call('TIME')
--@ token
--@ family
--@ tell
--@ line
--@ weight

if redis.call('ZSCORE', due, '!' .. id) then return {'gone'} end
if redis.call('EXISTS', other) == 1 then return {'mismatch', family(other)} end
local v = redis.pcall('GET', sem)
if type(v) == 'table' and v.err and not string.find(v.err, 'WRONGTYPE', 1, true) then return v end
if type(v) == 'table' or v and not string.find(v, '^%-?%d+$') then return {'mismatch', family(sem)} end

-- What has expired is free again.
local over = redis.call('ZCOUNT', set, 0, ms)
if over > 0 then redis.call('ZREMRANGEBYSCORE', set, 0, ms) end
for _, m in ipairs(redis.call('ZRANGEBYSCORE', ours, 0, ms)) do
  redis.call('HDEL', held, string.match(m, '^(.*)/'))
  redis.call('ZREM', ours, m)
end
local day = 86400000
if v and over > 0 then
  v = redis.call('INCRBY', sem, over)
  if v > 0 then tell(channel, v) end
elseif not v then
  v = limit - redis.call('ZCARD', set)
  redis.call('SET', sem, v, 'PX', ttl + day)
  if v > 0 then tell(channel, v) end
end
v = tonumber(v)
local taken = redis.call('ZCARD', set)
if v + taken ~= limit then
  if not idle(sem) then return {'mismatch', 'permits', v + taken} end
  v = limit
  redis.call('SET', sem, v, 'PX', ttl + day)
end
if redis.call('ZSCORE', set, ARGV[9]) then
  for i = 1, k do
    redis.call('ZADD', set, 'XX', 'GT', ms + ttl + 1, ARGV[8 + i])
    redis.call('ZADD', ours, 'XX', 'GT', ms + ttl + 1, id .. '/' .. i)
  end
  return {'again', redis.call('HGET', held, id) or reserve(1)}
end

-- Who is ahead in line goes first; those that fit and were not called yet are called.
local need, till = k, nil
for _, m in ipairs(redis.call('ZRANGE', line, 0, -1)) do
  if m == me then break end
  local t = alive(m)
  if t <= ms then
    drop(m)
  elseif t > ms + grace and need - k + weight(m) <= v then
    if call(m) then
      need, till = need + weight(m), math.min(till or ms + grace, ms + grace)
    end
  else
    need = need + weight(m)
    if t <= ms + grace then till = math.min(till or t, t) end
  end
end

if need <= v then
  redis.call('DECRBY', sem, k)
  for i = 1, k do
    redis.call('ZADD', set, ms + ttl + 1, ARGV[8 + i])
    redis.call('ZADD', ours, ms + ttl + 1, id .. '/' .. i)
  end
  -- A semaphore that another client made has no TTL, and gets none.
  local left = redis.call('PTTL', sem)
  if left > 0 then
    left = math.max(left, ttl + day)
    redis.call('PEXPIRE', sem, left)
    redis.call('PEXPIRE', set, left)
  end
  local first = reserve(1)
  redis.call('HSET', held, id, first)
  redis.call('PEXPIRE', held, ttl + day)
  redis.call('PEXPIRE', ours, ttl + day)
  drop(me)
  return first
end

if ARGV[3] == '1' then join(me, beat) end
local next = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2]
local owners = {}
local m = redis.call('ZRANGE', ours, 0, 0)[1]
if m then owners[1] = string.match(m, '^(.*)/') end
if redis.call('ZCARD', set) > redis.call('ZCARD', ours) then owners[#owners + 1] = '?' end
return {'held', next and v < k and math.max(1, tonumber(next) - ms) or 0, v >= k and till and till - ms + 1 or 0, ahead(me), owners, ''}
