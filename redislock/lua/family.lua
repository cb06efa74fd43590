-- family says what a key is used as: a kind, or "type:<redis type>" if it is none of ours.
local function family(key)
  local t = redis.call('TYPE', key).ok
  if t == 'hash' then
    if redis.call('HEXISTS', key, 'mode') == 1 then return 'read' end
    return redis.call('HGET', key, 'kind') or 'exclusive'
  elseif t == 'string' and string.find(redis.call('GET', key), '^%-?%d+$') then
    return 'permits'
  end
  return 'type:' .. t
end
