-- Takes plain locks that nobody has and nobody waits for, many at once, for one token each.
-- KEYS for each 1 lock, 2 due, 3 other, 4 token; ARGV 1 ttl, then for each the id
-- Replies a token, which serves for all, and for each 1, or "" if the case is another one and nothing was done, or an error.
local call, time = redis.pcall, redis.call('TIME')
local stamp, keep, ttl = time[1] .. string.sub('00000' .. time[2], -6), '86400001', ARGV[1]
local out = {stamp}

-- As stamp in token.lua, once for all of them.
local last = call('GET', clock)
local usual = not last or type(last) == 'string' and #last == 16
if last and usual and last >= stamp then
  keep = string.format('%.0f', 86400001 + math.ceil((last - stamp) / 1000))
  stamp = string.format('%.0f', last + 1)
  out[1] = stamp
end
local set = usual and call('SET', clock, stamp, 'PX', keep)

-- free reports whether the lock can be taken, though one of its keys exists: if that is just an earlier token, it is removed.
local function free(lock, due, other, token)
  if call('EXISTS', lock, due, other) ~= 0 then return false end
  local record = call('GET', token)
  local was = type(record) == 'string' and string.match(record, '^%d+')
  return was and #was == 16 and was < stamp and call('DEL', token) == 1
end

for i = 2, #ARGV do
  local k = 4 * i - 7
  local lock, due, other, token, answer = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], ''
  if not usual then
    answer = ''
  elseif set.err then
    answer = set
  elseif call('EXISTS', lock, due, other, token) == 0 or free(lock, due, other, token) then
    answer = call('HSET', lock, ARGV[i], stamp)
    if answer == 1 then
      local set = call('PEXPIRE', lock, ttl)
      if set ~= 1 then
        call('DEL', lock)
        answer = set
      end
    end
  end
  out[i] = answer
end
return out
