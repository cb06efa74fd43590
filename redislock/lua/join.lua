-- Takes plain locks, all or none: those that nobody has, nobody waits for, and nothing else goes on at.
-- KEYS for each 1 lock, 2 due, 3 line, 4 other, 5 token; ARGV for each 1 id, 2 ttl
-- Replies the tokens, or {"held", which (from 1), pttl, owner}, or {"alone"}: ask for each by itself.
local time, token, counter = redis.call('TIME')
--@ token
local n, out = #ARGV / 2, {}
for i = 0, n - 1 do
  local lock, due, id = KEYS[5 * i + 1], KEYS[5 * i + 2], ARGV[2 * i + 1]
  if redis.call('EXISTS', KEYS[5 * i + 3], KEYS[5 * i + 4]) > 0 or redis.call('ZSCORE', due, '*')
    or redis.call('ZSCORE', due, '!' .. id) then
    return {'alone'}
  end
  local t = redis.call('TYPE', lock).ok
  if t == 'hash' and redis.call('HLEN', lock) == 1 then
    local owner = redis.call('HKEYS', lock)[1]
    if not string.find(owner, ':', 1, true) then return {'alone'} end
    return {'held', i + 1, redis.call('PTTL', lock), owner}
  elseif t ~= 'none' then
    return {'alone'}
  end
end
for i = 0, n - 1 do
  token = KEYS[5 * i + 5]
  local first = stamp()
  out[i + 1] = first or reserve(1)
  redis.call('HSET', KEYS[5 * i + 1], ARGV[2 * i + 1], first or '1')
  redis.call('PEXPIRE', KEYS[5 * i + 1], ARGV[2 * i + 2])
end
return out
