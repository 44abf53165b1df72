[range(25000) | {id: ., name: "name-\(. * 7919 % 25013)", tags: ["tag-\(. % 3)", "tag-\(. % 5)"]}]
| group_by(.tags[1]) | map(map(.name) | sort | join(",") | split(",") | length) | add
