-- Strings and tables, made and collected.
local people = {}
for i = 0, 79999 do
  local name = "name-" .. (i * 7919 % 80021)
  people[name] = {id = i, tags = {"tag-" .. i % 3, "tag-" .. i % 5, "tag-" .. i % 7}, weight = i / 2}
  if i % 3 == 0 then people["name-" .. ((i // 2) * 7919 % 80021)] = nil end
end
local groups = {}
for name, person in pairs(people) do
  local group = groups[person.tags[2]] or {}
  groups[person.tags[2]] = group
  group[#group + 1] = {person.weight, name}
end
for _, group in pairs(groups) do
  table.sort(group, function(a, b) return a[1] < b[1] end)
end
