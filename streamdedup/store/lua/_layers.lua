-- The layer that documents enter, and its sweeping. Put in front of the script that lets documents enter.
--
-- Members for each shelf with which another one is added, and with which a layer has too many shelves.
local TOO_MANY, TOO_FEW = 16, 3
-- Layers that are looked into, at most: daemons with different settings must not begin them without end.
local MOST_LAYERS = 16
-- Members in one command; Lua hands over a few thousand arguments.
local MOST_ARGUMENTS = 1000

-- The layers that are looked into, in order.
local function alive_of(layers, now)
  local alive = {}
  for _, layer in ipairs(layers) do
    if layer.last == 0 or layer.last > now then
      alive[#alive + 1] = layer
    end
  end
  return alive
end

local function era_at(now, lifetime)
  return lifetime == 0 and 0 or floor(now / math.ceil(lifetime / 2))
end

-- Whether no layer will be gone when those of its time are.
local function is_alone(layer, alive)
  for _, other in ipairs(alive) do
    if other ~= layer and other.last ~= 0 then
      return false
    end
  end
  return true
end

-- How many shelves the next layer needs; nil when the newest will do. eras: how many have begun since the last call.
local function shelves_needed(layers, alive, lifetime, eras)
  local layer = layers[#layers]
  if not layer then
    return FEWEST_SHELVES
  elseif #alive >= MOST_LAYERS then
    return nil
  end
  local fewer = max(FEWEST_SHELVES, floor(layer.shelves / 4))
  if lifetime ~= layer.lifetime and (lifetime == 0 or lifetime > layer.lifetime or layer.lifetime == 0) then
    return layer.shelves
  elseif eras > 1 or eras < -1 then
    -- An era without a call was not swept; or the clock has gone back by more than little.
    return layer.shelves
  elseif eras == 1 and layers.swept < layer.shelves and layers.era - layer.begun >= 3 then
    -- There was something to sweep, and so few documents came that not all of it was.
    return fewer
  elseif eras == 1 and is_alone(layer, alive) and layer.count < TOO_FEW * layer.shelves and fewer < layer.shelves then
    return fewer
  elseif eras == 1 and lifetime ~= layer.lifetime then
    -- A shorter lifetime can wait for the next era: another daemon may still have the longer one.
    return layer.shelves
  end
end

-- The layer that documents enter now, which may be a new one.
local function layer_to_enter(layers, alive, prefix, lifetime, now)
  local layer = layers[#layers]
  local era = era_at(now, layer and layer.lifetime or lifetime)
  local shelves = shelves_needed(layers, alive, lifetime, era - layers.era)
  if shelves then
    if layer and layer.lifetime > 0 then
      layer.last = layers.latest + layer.lifetime
    end
    era = era_at(now, lifetime)
    layer = layer_of(prefix, layer and layer.id + 1 or 1, shelves, lifetime, era)
    layers[#layers + 1], alive[#alive + 1] = layer, layer
    layers.era, layers.swept = era, 0
  elseif era > layers.era then
    -- A clock that goes back a little must not make the era that has just begun the one to be swept.
    layers.era, layers.swept = era, 0
  end
  return layer
end

-- Members of a shelf that match a pattern.
local function matching(shelf, pattern)
  local cursor, members = '0', {}
  repeat
    local reply = redis.call('ZSCAN', shelf, cursor, 'MATCH', pattern, 'COUNT', 1000)
    for i = 1, #reply[2], 2 do
      members[#members + 1] = reply[2][i]
    end
    cursor = reply[1]
  until cursor == '0'
  return members
end

-- Sweep some shelves of the newest layer, until all are swept in this era: of members of the era whose digit comes next.
-- count: documents of this call.
local function sweep(layers, count)
  local layer = layers[#layers]
  local stop = min(layer.shelves, layers.swept + max(2 * count, FEWEST_SHELVES))
  local pattern = format('%d*', (layers.era + 1) % 4)
  for number = layers.swept, stop - 1 do
    local shelf = shelf_of(layer, number)
    for _, member in ipairs(matching(shelf, pattern)) do
      layer.count = layer.count - redis.call('ZREM', shelf, member)
    end
  end
  layers.swept = stop
end

-- Add a shelf to a layer: part the members of the one that its own stood on so far.
local function add_shelf(layer)
  local from, to = shelf_of(layer, layer.shelves - layer.base), shelf_of(layer, layer.shelves)
  local time_to_live = redis.call('PTTL', from)
  set_shelves(layer, layer.shelves + 1)
  local scored, moving = {}, {}
  for _, member in ipairs(redis.call('ZRANGE', from, '0', '-1')) do
    local band_key = number_of(sub(member, 2, 5))
    if place_on(layer, band_key) == layer.shelves - 1 then
      scored[#scored + 1], scored[#scored + 2], moving[#moving + 1] = score_of(band_key), member, member
    end
  end
  for i = 1, #moving, MOST_ARGUMENTS do
    local last = min(i + MOST_ARGUMENTS - 1, #moving)
    redis.call('ZADD', to, unpack(scored, 2 * i - 1, 2 * last))
    redis.call('ZREM', from, unpack(moving, i, last))
  end
  if time_to_live > 0 then
    redis.call('PEXPIRE', to, format('%.0f', time_to_live))
  end
end

-- Add the shelves that the newest layer needs, a few more than for the documents of this call. count: those documents.
local function grow(layers, count)
  local layer = layers[#layers]
  for _ = 1, 2 + count do
    if layer.count < TOO_MANY * layer.shelves then
      return
    end
    add_shelf(layer)
  end
end

