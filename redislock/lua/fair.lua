-- Takes a fair lock (Fair), or gets in the queue for it.
-- KEYS 1 lock, 2 queue, 3 queue deadlines, 4 line, 5 due, 6 other, 7 token, 8 set of permits,
-- 9 counter (fenced only)
-- ARGV 1 id, 2 ttl, 3 span, 4 "1" to wait, 5 beat, 6 channel
-- Replies as lock.lua does; the last element is who is ahead in the queue.
local lock, queue, qdue, line, due, other, token, set, counter = unpack(KEYS)
local id, ttl, span, kind, value = ARGV[1], ARGV[2], tonumber(ARGV[3]), '', ''
local beat, channel = tonumber(ARGV[5]), ARGV[6]
local time = redis.call('TIME')
--@ token
--@ family
--@ plain

if redis.call('EXISTS', lock, queue, due, other) == 0 then return take() end

--@ tell
--@ queue
local why, free, owners = busy()
if why then return why end
local m, mtill = head()
if free and (not m or m == id) then
  if m then
    redis.call('LPOP', queue)
    redis.call('ZREM', qdue, id)
  end
  return take()
end

local pos = redis.call('LPOS', queue, id)
if ARGV[4] == '1' then
  -- A client of another make subtracts its own waiting time from all behind it when it gets the lock, so whoever is
  -- behind such a one needs that time on top.
  local prev = not pos and redis.call('LINDEX', queue, -1) or pos and pos > 0 and redis.call('LINDEX', queue, pos - 1)
  local till = ms + beat
  local before = prev and tonumber(redis.call('ZSCORE', qdue, prev) or '0') or 0
  if before > till then till = before + beat end
  redis.call('ZADD', qdue, till, id)
  if not pos then pos = redis.call('RPUSH', queue, id) - 1 end
  local keep = math.ceil(tonumber(redis.call('ZRANGE', qdue, -1, -1, 'WITHSCORES')[2]) - ms) + 600000
  redis.call('PEXPIRE', queue, keep)
  redis.call('PEXPIRE', qdue, keep)
end
local again = 0
if free then again = summon(m, mtill) - ms + 1 end
local before = {}
if pos and pos > 32 then
  before = {'?'}
elseif pos and pos > 0 then
  before = redis.call('LRANGE', queue, 0, pos - 1)
end
return {'held', redis.call('PTTL', lock), again, pos or redis.call('LLEN', queue), owners or {}, '', before}
