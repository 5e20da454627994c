-- Tables, views and functions of stories.py, which runs this file at its start and waits here while another one works.
SELECT pg_advisory_lock(hashtext('streamdedup stories'));

CREATE TABLE IF NOT EXISTS offsets (topic text, partition int, next bigint NOT NULL, PRIMARY KEY (topic, partition));

-- Present version of each document: the digest of its text, then the digest after each append.
CREATE TABLE IF NOT EXISTS documents (
  profile text, id text, digests text[] NOT NULL, source text, time timestamptz NOT NULL, PRIMARY KEY (profile, id)
);

-- Alerted pairs of versions, also of earlier ones: a pair is not alerted again when a text returns.
CREATE TABLE IF NOT EXISTS pairs (
  profile text, id text, digest text, other text, other_digest text,
  PRIMARY KEY (profile, id, digest, other, other_digest)
);

-- Pairs of present versions: a document, and an earlier one that it resembles.
CREATE OR REPLACE VIEW live_pairs AS
WITH sides AS (
  SELECT profile, id, digest, other, other_digest FROM pairs
  UNION ALL SELECT profile, other, other_digest, id, digest FROM pairs
)
SELECT DISTINCT a.profile, a.id, b.id AS earlier, b.time AS earlier_time
FROM sides s
JOIN documents a ON a.profile = s.profile AND a.id = s.id AND s.digest = ANY (a.digests)
JOIN documents b ON b.profile = s.profile AND b.id = s.other AND s.other_digest = ANY (b.digests)
WHERE (b.time, b.id) < (a.time, a.id);

-- A document is in the story of the earliest document that it resembles; where no earlier one is, it begins a story.
CREATE OR REPLACE VIEW members AS
WITH RECURSIVE parents AS (
  SELECT DISTINCT ON (profile, id) profile, id, earlier FROM live_pairs ORDER BY profile, id, earlier_time, earlier
), placed AS (
  SELECT profile, id, id AS cluster FROM documents d
  WHERE NOT EXISTS (SELECT FROM parents p WHERE (p.profile, p.id) = (d.profile, d.id))
  UNION ALL
  SELECT p.profile, p.id, s.cluster FROM parents p JOIN placed s ON (s.profile, s.id) = (p.profile, p.earlier)
)
SELECT profile, cluster, id, source, time FROM placed JOIN documents USING (profile, id);

CREATE OR REPLACE VIEW stories AS
SELECT profile, cluster, count(*) AS size, min(time) AS first,
  array_agg(DISTINCT source) FILTER (WHERE source IS NOT NULL) AS sources
FROM members GROUP BY profile, cluster HAVING count(*) > 1;

-- The same text again is the same version: it keeps its time. No time, or one in the future: the clock.
CREATE OR REPLACE FUNCTION store_document(text, text, text, text, time_ms bigint) RETURNS void LANGUAGE sql AS $$
  INSERT INTO documents
  VALUES ($1, $2, ARRAY[$3], $4, CASE WHEN time_ms < 0 THEN now()
    ELSE to_timestamp(least(time_ms / 1000.0, extract(epoch FROM now()))) END)
  ON CONFLICT (profile, id) DO UPDATE SET digests = excluded.digests, source = excluded.source,
    time = CASE documents.digests WHEN excluded.digests THEN documents.time ELSE excluded.time END;
$$;
CREATE OR REPLACE FUNCTION store_append(text, text, text) RETURNS void LANGUAGE sql AS $$
  UPDATE documents SET digests = digests || $3 WHERE (profile, id) = ($1, $2);
$$;
CREATE OR REPLACE FUNCTION store_pair(text, text, text, text, text) RETURNS void LANGUAGE sql AS $$
  INSERT INTO pairs VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING;
$$;
CREATE OR REPLACE FUNCTION store_offset(text, int, bigint) RETURNS void LANGUAGE sql AS $$
  INSERT INTO offsets VALUES ($1, $2, $3 + 1) ON CONFLICT (topic, partition) DO UPDATE SET next = excluded.next;
$$;
