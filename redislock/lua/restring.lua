-- Renews a lock that is one plain string key, if it has this value.
-- KEYS 1 lock
-- ARGV 1 value, 2 ttl
-- Replies 1 if it was there, else 0.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
