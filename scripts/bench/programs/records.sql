CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, tag TEXT, weight REAL);
INSERT INTO person
  WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 159999)
  SELECT i, 'name-' || (i * 7919 % 160001), 'tag-' || (i % 500), i * 0.5 FROM n;
CREATE INDEX by_name ON person(name);
DELETE FROM person WHERE id % 3 = 0;
SELECT count(*) FROM (SELECT tag, group_concat(name) AS names FROM person GROUP BY tag);
SELECT count(*) FROM person a JOIN person b ON a.name = 'name-' || (b.id * 7919 % 160001);
