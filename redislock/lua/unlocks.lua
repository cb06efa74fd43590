-- Ends stamped holds of plain locks for which nobody waits, many at once.
-- KEYS for each 1 lock, 2 due, 3 queue; ARGV for each 1 id, 2 its token
-- Replies for each 1, or 2 if the hold was ended and somebody has to be let in, or "" if the case is another one and nothing
-- was done, or an error.
local call, out = redis.pcall, {}
for i = 1, #ARGV / 2 do
  local k = 3 * i - 2
  local lock, id, answer = KEYS[k], ARGV[2 * i - 1], ''
  if call('HGET', lock, id) == ARGV[2 * i] then
    answer = call('HDEL', lock, id)
    if answer == 1 then
      if call('EXISTS', lock, KEYS[k + 1], KEYS[k + 2]) == 0 then
        call('PUBLISH', 'redisson_lock__channel:' .. (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'), '0')
      else
        answer = 2
      end
    end
  end
  out[i] = answer
end
return out
