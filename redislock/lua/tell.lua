-- publish answers how many heard a message, or nil if the user may not publish: what was done goes on without it.
local function publish(channel, payload)
  local n = redis.pcall('PUBLISH', channel, payload)
  return type(n) == 'number' and n or nil
end

-- tell publishes on a channel of Redisson's, whose clients listen to sharded messages in most clusters and to plain ones
-- elsewhere. It answers how many listen at this node.
local function tell(channel, payload)
  local n = publish(channel, payload) or 0
  local more = cluster and redis.pcall('SPUBLISH', channel, payload)
  return type(more) == 'number' and n + more or n
end
