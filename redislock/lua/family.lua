-- family says what a key is used as: a kind, or "type:<redis type>" if it is none of ours.
local function family(key)
  local t = redis.call('TYPE', key).ok
  if t == 'hash' and redis.call('HEXISTS', key, 'mode') == 1 then return 'read' end
  local kind = t == 'hash' and redis.call('HGET', key, 'kind')
  if kind then return kind end
  if t == 'hash' and redis.call('HLEN', key) <= 1000 then
    for _, f in ipairs(redis.call('HKEYS', key)) do
      if string.find(f, ':', 1, true) then return 'exclusive' end
    end
  elseif t == 'string' and string.find(redis.call('GET', key), '^%-?%d+$') then
    return 'permits'
  end
  return 'type:' .. t
end

-- idle reports whether key is a semaphore that pawl made (one of another client has no TTL) and nobody uses any more; it is
-- then gone.
local function idle(key)
  if redis.call('TYPE', key).ok ~= 'string' or family(key) ~= 'permits' or redis.call('PTTL', key) <= 0 then return false end
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if redis.call('ZCOUNT', set, '(' .. now, '+inf') > 0 or redis.call('EXISTS', line) == 1 then return false end
  redis.call('DEL', key, set)
  return true
end
