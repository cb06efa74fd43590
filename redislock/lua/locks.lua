-- Takes plain locks that nobody has and nobody waits for, many at once, for one token each.
-- KEYS for each 1 lock, 2 due, 3 other, 4 token; ARGV 1 ttl, then for each the id
-- Replies a token, which serves for all, and for each 1, or "" if the case is another one and nothing was done, or an error.
local call, time = redis.pcall, redis.call('TIME')
local now, ttl = time[1] .. string.sub('00000' .. time[2], -6), ARGV[1]
local out = {now}
for i = 2, #ARGV do
  local k = 4 * i - 7
  local lock, token, answer = KEYS[k], KEYS[k + 3], ''
  if call('EXISTS', lock, KEYS[k + 1], KEYS[k + 2]) == 0 then
    local old = call('SET', token, now, 'PX', '86400001', 'GET')
    if not old or type(old) == 'string' and #old == 16 and old < now then
      answer = call('HSET', lock, ARGV[i], '1')
      if answer == 1 then
        local set = call('PEXPIRE', lock, ttl)
        if set ~= 1 then
          call('DEL', lock)
          answer = set
        end
      end
    elseif type(old) == 'string' then
      local ahead = tonumber(string.match(old, '%d+')) - now
      call('SET', token, old, 'PX', string.format('%.0f', 86400001 + math.max(0, math.ceil(ahead / 1000))))
    else
      answer = old
    end
  end
  out[i] = answer
end
return out
