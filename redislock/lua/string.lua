-- Takes a lock that is one plain string key, as many other clients do.
-- KEYS 1 lock, 2 tombstone of this request
-- ARGV 1 value, 2 ttl
-- Replies 1, {"gone"}, {"type", type}, or {"held", pttl}.
if redis.call('EXISTS', KEYS[2]) == 1 then return {'gone'} end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'string' then return {'type', kind} end
if redis.call('GET', KEYS[1]) == ARGV[1] then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  return 1
end
return {'held', redis.call('PTTL', KEYS[1])}
