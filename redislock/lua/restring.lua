-- Renews locks that are one plain string key each, if they have these values. What is not there is not made again.
-- KEYS locks; ARGV for each 1 value, 2 ttl
-- Replies "1" for each that was there, else "0", one after the other.
local out = {}
for i, lock in ipairs(KEYS) do
  local ttl = ARGV[2 * i]
  out[i] = redis.pcall('GET', lock) == ARGV[2 * i - 1] and '1' or '0'
  if out[i] == '1' and redis.call('PTTL', lock) < tonumber(ttl) then redis.call('PEXPIRE', lock, ttl) end
end
return table.concat(out)
