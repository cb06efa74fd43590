-- Lets later tokens begin above one, if the lock has this value.
-- KEYS 1 lock, 2 token; ARGV 1 value, 2 token
-- Replies 1, or 0 if it has not.
local token, counter, time = KEYS[2], nil, redis.call('TIME')
--@ token
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local last, _, first = recorded()
if not last or above(ARGV[2], last) then record(ARGV[2], '+', first or '0') end
return 1
