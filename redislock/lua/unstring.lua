-- Ends a lock that is one plain string key, if it has this value.
-- KEYS 1 lock, 2 tombstone
-- ARGV 1 value, 2 ms to keep the name taken or "", 3 the value it is then kept with, 4 ms to refuse a late request or "",
--      5, 6 channels of Spring or "", 7 key in the message
-- Replies 1 if the lock was there, else 0.
if ARGV[4] ~= '' then redis.call('SET', KEYS[2], '', 'PX', ARGV[4]) end
local value = redis.pcall('GET', KEYS[1])
if value ~= ARGV[1] then return 0 end
if ARGV[2] ~= '' then
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
  return 1
end
redis.call('DEL', KEYS[1])
for i = 5, 6 do
  if ARGV[i] ~= '' then redis.call('PUBLISH', ARGV[i], ARGV[7]) end
end
return 1
