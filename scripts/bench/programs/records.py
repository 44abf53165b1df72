# PYTHONMALLOC=malloc makes every object a malloc.
import json

people = {}
for i in range(60_000):
    name = f"name-{i * 7919 % 60_013}"
    people[name] = {"id": i, "tags": [f"tag-{i % n}" for n in (3, 5, 7)], "weight": i * 0.5}
    if i % 3 == 0:
        people.pop(f"name-{(i // 2) * 7919 % 60_013}", None)
groups = {}
for name, person in sorted(people.items()):
    groups.setdefault(person["tags"][1], []).append((person["weight"], name))
text = json.dumps(groups)
assert json.loads(text).keys() == groups.keys()
