-- Reads all that is known of a name.
-- KEYS 1 main key, 2 set of permits, 3 line, 4 queue, 5 pawl's lock (election or once), 6 token, 7 held, 8 permits of pawl
-- ARGV 1 what the keys of read holds begin with
-- Replies {waiters, record of the token key, now in ms, {kind, field, ms left, token, value …}, free permits or false,
-- {permit, expiry …}, {permit of pawl, expiry …}}.
local main, set, line, queue, own, token, held, ours = unpack(KEYS)
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
--@ family

local holds = {}
local function add(kind, field, left, first, value)
  for _, x in ipairs({kind, field, tostring(left), first or '', value or ''}) do holds[#holds + 1] = x end
end

local function size(command, key)
  local n = redis.pcall(command, key)
  return type(n) == 'number' and n or 0
end

local f = family(main)
local free, permits, mine = false, {}, {}
if f == 'permits' then
  free = redis.call('GET', main)
  permits = redis.pcall('ZRANGE', set, 0, -1, 'WITHSCORES')
  if permits.err then permits = {} end
  mine = redis.call('ZRANGE', ours, 0, -1, 'WITHSCORES')
  for i = 1, #mine, 2 do
    local id = string.match(mine[i], '^(.*)/1$')
    if id then add('token', id, 0, redis.call('HGET', held, id)) end
  end
elseif f == 'exclusive' or f == 'read' then
  local all = redis.call('HGETALL', main)
  local left = redis.call('PTTL', main)
  if #all > 20000 then all = {} end
  for i = 1, #all, 2 do
    local field, count = all[i], tonumber(all[i + 1])
    if f == 'exclusive' then
      if count and string.find(field, ':', 1, true) then add('exclusive', field, left, #all[i + 1] > 9 and all[i + 1]) end
    elseif string.sub(field, -6) == ':write' then
      add('write', string.sub(field, 1, -7), left)
    elseif count and field ~= 'mode' then
      local most = -2
      for j = 1, math.min(count, 1000) do
        most = math.max(most, redis.call('PTTL', ARGV[1] .. ':' .. field .. ':rwlock_timeout:' .. j))
      end
      if most ~= -2 then add('read', field, most, redis.call('HGET', held, field)) end
    end
  end
end
local kind = redis.pcall('HGET', own, 'kind')
if type(kind) == 'string' then
  local value = redis.call('HGET', own, 'value')
  for _, field in ipairs(redis.call('HKEYS', own)) do
    if string.find(field, ':', 1, true) then add(kind, field, redis.call('PTTL', own), nil, value) end
  end
end
return {size('ZCARD', line) + size('LLEN', queue), redis.pcall('GET', token) or '', ms, holds, free, permits, mine}
