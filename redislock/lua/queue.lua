-- Redisson's fair queue: a list of owners, and a sorted set that says until when each waits.

local ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- head removes the dead from the head of the queue, and answers who is first.
local function head()
  while true do
    local m = redis.call('LINDEX', queue, 0)
    if not m then return nil end
    local till = redis.call('ZSCORE', qdue, m)
    if not till then
      -- Redisson would wait for it for ever.
      redis.call('ZADD', qdue, ms + 15000, m)
      return m
    end
    if tonumber(till) > ms then return m, tonumber(till) end
    redis.call('ZREM', qdue, m)
    redis.call('LPOP', queue)
  end
end

-- summon tells the first in the queue that the lock is free. One of pawl's then has 2 s to come and one to whom nobody
-- listens 0.5 s; a living client of another make keeps its own time. It answers until when (ms) the next has to wait.
local function summon(m, till)
  if till and till <= ms + 2000 then return till end
  local grace = 2000
  if publish('pawl_wake:' .. string.match(m, '^[^:]*'), m) == 0 or cluster then
    if tell(channel .. ':' .. m, '0') > 0 then return ms + 250 end
    if not cluster then grace = 500 end
  end
  redis.call('ZADD', qdue, 'XX', 'LT', ms + grace, m)
  local second = redis.call('LINDEX', queue, 1)
  if second then publish( 'pawl_wake:' .. string.match(second, '^[^:]*'), second .. ' ' .. grace) end
  return ms + grace
end
