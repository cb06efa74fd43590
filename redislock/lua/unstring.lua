-- Ends a lock that is one plain string key, if it has this value.
-- KEYS 1 lock, 2 tombstone, 3 token (fenced only)
-- ARGV 1 value, or "sha1:" and the hash of one, 2 token or "", 3 ms to keep the name taken or "", 4 the value it is then kept with,
--      5 ms to refuse a late request or "", 6, 7 channels of Spring or "", 8 key in the message
-- Replies 1 if the lock was there, else 0.
local lock, token, counter, time = KEYS[1], KEYS[3], nil, nil
--@ token
if ARGV[5] ~= '' then redis.call('SET', KEYS[2], '', 'PX', ARGV[5]) end
local value = redis.pcall('GET', lock)
if type(value) ~= 'string' then return 0 end
if string.sub(ARGV[1], 1, 5) == 'sha1:' then value = 'sha1:' .. redis.sha1hex(value) end
if value ~= ARGV[1] then return 0 end
if token and ARGV[2] ~= '' then
  local first = select(3, recorded())
  if first and first ~= ARGV[2] then return 0 end
end
if ARGV[3] ~= '' then
  redis.call('SET', lock, ARGV[4], 'PX', ARGV[3])
  return 1
end
redis.call('DEL', lock)
for i = 6, 7 do
  if ARGV[i] ~= '' then redis.call('PUBLISH', ARGV[i], ARGV[8]) end
end
return 1
