-- Lets later tokens begin above one, if the hold is there.
-- KEYS 1 lock or set of permits, 2 token, 3 counter (fenced) or hold (read) or nothing
-- ARGV 1 field or permit, 2 token, 3 "hash", "read", "permits" or "fenced"
-- Replies 1, or 0 if the hold is not there.
local lock, token, third = unpack(KEYS)
local counter = nil
local time = redis.call('TIME')
--@ token
local what, there = ARGV[3], nil
if what == 'permits' then
  local till = redis.pcall('ZSCORE', lock, ARGV[1])
  there = type(till) == 'string' and tonumber(till) > time[1] * 1000
else
  there = redis.pcall('HEXISTS', lock, ARGV[1]) == 1 and (what ~= 'read' or redis.call('EXISTS', third) == 1)
end
if not there then return 0 end
local last, _, first = recorded()
if what == 'hash' then first = stamped(redis.call('HGET', lock, ARGV[1])) or first end
if not last or above(ARGV[2], last) then record(ARGV[2], '+', first or '0') end
if what == 'fenced' and above(ARGV[2], redis.call('GET', third) or '0') then redis.call('SET', third, ARGV[2]) end
return 1
