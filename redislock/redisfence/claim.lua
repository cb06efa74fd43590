-- Raises the mark of a resource, or answers with the error "PAWLSTALE <what was seen>".
-- The last of KEYS is the mark. The last four of ARGV are the token, the hold, "1" for a shared claim, and for how many
-- milliseconds to keep the mark ("0": for ever). They are gone when the rest of the script runs.
do
  local n = #ARGV
  local mark, token, hold, shared, keep = KEYS[#KEYS], ARGV[n - 3], ARGV[n - 2], ARGV[n - 1], ARGV[n]
  KEYS[#KEYS] = nil
  for i = n, n - 3, -1 do ARGV[i] = nil end
  -- Decimals without leading zeros: Lua's numbers are exact to 2^53 only.
  local function less(a, b) return #a < #b or #a == #b and a < b end
  local m = redis.call('HMGET', mark, 'token', 'hold', 'shared')
  local top, by, readers = m[1] or '0', m[2], m[3] or '0'
  local newer = less(top, token) or top == token and by == hold
  if shared == '1' then
    if not newer then return redis.error_reply('PAWLSTALE ' .. top) end
    if less(readers, token) then redis.call('HSET', mark, 'shared', token) end
  else
    if not newer or less(token, readers) then
      return redis.error_reply('PAWLSTALE ' .. (less(top, readers) and readers or top))
    end
    redis.call('HSET', mark, 'token', token, 'hold', hold)
  end
  if keep ~= '0' then redis.call('PEXPIRE', mark, keep) end
end
