import java.nio.file.*;
import java.util.*;
import java.util.regex.*;
import java.util.stream.*;
import static java.nio.charset.StandardCharsets.*;
import static java.text.Normalizer.Form.*;
import static java.text.Normalizer.normalize;
import static java.util.Arrays.copyOfRange;

/** Computes all values of the vectors, written from docs/format.md alone: java Format.java .../sample/vectors.jsonl */
public class Format {
    static final Set<String> INPUT = Set.of("name", "profile", "id", "text", "words", "scope", "shards");
    // Possessive (*+), since a long link would else need a deep stack; what the expression matches is the same.
    static final Pattern LINK = Pattern.compile("(?i)(?<!\\w)((https?|ftp)://|www\\.)(C|\\(C*\\))*+|(?<=\\])\\(C+\\)"
        .replace("C", "[A-Za-z0-9_.~:/?#@!$&'*+,;=%-]"));
    static int deviations = 0;
    public static void main(String[] arguments) throws Exception {
        readTables(Path.of(arguments[0]).toAbsolutePath().getParent());
        int line = 0;
        for (String text : Files.readAllLines(Path.of(arguments[0]))) new Format(text).checkAll(line++);
        System.out.println(line + " vectors, " + deviations + " deviations");
        System.exit(deviations == 0 ? 0 : 1);
    }
    void check(String step, Object got) {
        checked.add(step);
        if (Objects.equals(got, vector.get(step))) return;
        deviations++;
        System.out.println(vector.get("name") + ": " + step + ": expected " + vector.get(step) + ", got " + got);
    }

    // Tables: classes of characters, replacements of characters, and words
    static final Map<String, BitSet> CLASSES = new HashMap<>();
    static final Map<String, Map<Integer, String>> TABLES = new HashMap<>();
    static final List<String> ENGLISH = new ArrayList<>();
    static boolean in(String name, int point) { return CLASSES.get(name).get(point); }
    static Map<Integer, String> table(String name) { return TABLES.computeIfAbsent(name, key -> new HashMap<>()); }
    static void readTables(Path folder) throws Exception {
        for (String line : Files.readAllLines(folder.resolve("format_tables.txt"))) {
            String name = line.split(" ")[0], content = line.substring(name.length() + 1);
            if (name.equals("stop_word")) ENGLISH.add(content);
            if (name.matches("#|stop_word")) continue;
            int[] row = Stream.of(content.split(" ")).mapToInt(digits -> Integer.parseInt(digits, 16)).toArray();
            if (name.matches("casefold|replaced|simplified")) table(name).put(row[0], new String(row, 1, row.length - 1));
            else CLASSES.computeIfAbsent(name, key -> new BitSet()).set(row[0], row[1] + 1);
        }
        for (String name : List.of("han_variants", "look_alikes")) {
            for (String line : Files.readAllLines(folder.resolveSibling("text").resolve(name + ".txt"))) {
                if (line.startsWith("#")) continue;
                String first = Character.toString(line.codePointAt(0));
                line.codePoints().skip(1).forEach(point -> table(name).put(point, first));
            }
        }
    }

    // A vector, the parameters of its profile, and what follows from these
    final Map<?, ?> vector, profile;
    final int size;
    final Set<String> checked = new HashSet<>(INPUT), stopWords = new HashSet<>();
    final Map<Integer, String> replaced = new HashMap<>(table("replaced"));
    Format(String line) {
        vector = (Map<?, ?>) json(JSON.matcher(line));
        profile = (Map<?, ?>) vector.get("profile");
        size = (int) number("shingle_size", is("shingle_unit", "char") ? 5 : 3);
        if (is("fold_marks", true)) replaced.putAll(table("simplified"));
        if (is("fold_variants", true)) replaced.putAll(table("han_variants"));
        if (is("fold_look_alikes", true)) replaced.putAll(table("look_alikes"));
        if (is("stop_words", "english")) for (String word : ENGLISH) stopWords.addAll(tokens(separated(fold(word))));
    }
    boolean is(String name, Object otherThanDefault) { return otherThanDefault.equals(profile.get(name)); }
    long number(String name, long otherwise) { return profile.get(name) instanceof Long value ? value : otherwise; }

    // From a text to its tokens
    String fold(String text) {
        boolean marks = is("fold_marks", true);
        String next = replace(marks ? normalize(text, NFD) : text,
            point -> in("ignored", point) || marks && in("folded_mark", point) ? "" : null);
        next = replace(normalize(next, NFC), point -> in("spaced", point) ? " " : null);
        next = replace(normalize(next, NFKC), table("casefold")::get).replace("i\u0307", "i");
        next = normalize(replace(next, replaced::get), NFKC);
        return next.equals(text) ? text : fold(next);
    }
    static String replace(String text, java.util.function.IntFunction<String> replacement) {
        return text.codePoints().mapToObj(point -> Objects.requireNonNullElseGet(replacement.apply(point),
            () -> Character.toString(point))).collect(Collectors.joining());
    }
    String separated(String folded) {  // the folded text with one space for each run of separators, none at the ends
        return replace(folded, point -> in("letter", point) || in("mark", point)
            || in("number", point) && !is("letters_only", true) ? null : " ").replaceAll(" +", " ").strip();
    }
    static List<String> tokens(String separated) {
        StringBuilder cut = new StringBuilder();
        boolean afterSolo = false;
        for (int point : separated.codePoints().toArray()) {
            boolean mark = in("mark", point), solo = !mark && in("solo", point);
            if (solo || afterSolo && !mark) cut.append(' ');
            if (!mark) afterSolo = solo;
            cut.appendCodePoint(point);
        }
        return Stream.of(cut.toString().split(" +")).filter(token -> !token.isEmpty()).toList();
    }

    // Hashes
    static long shifted(long x, int bits) { return x ^ x >>> bits; }
    static long mix(long x) { return shifted(shifted(x, 32) * 0x6A09E667F3BCC909L, 29); }
    static long finish(long x) { return shifted(x * 0xA54FF53A5F1D36F1L, 32) * 0x510E527FADE682D1L >>> 32; }
    static long sum(long base, long... values) {  // the sum of base^j * values[j]
        long sum = 0;
        for (int j = values.length - 1; j >= 0; j--) sum = sum * base + values[j];
        return sum;
    }
    static long[] tokenHashes(List<String> tokens) {
        return tokens.stream().mapToLong(token -> {
            boolean ascii = token.chars().allMatch(unit -> unit < 0x80);
            byte[] bytes = token.getBytes(ascii ? US_ASCII : UTF_16LE);
            long hash = sum(0xBB67AE8584CAA73BL, LongStream.of(words(bytes)).map(Format::mix).toArray());
            return ascii ? hash : hash + 0x1F83D9ABFB41BD6BL;
        }).toArray();
    }
    long[] shingles(long[] elements) {  // the hashes of all shingles, in the order of the text
        int n = elements.length, length = Math.min(size, n);
        int count = n == 0 || n < size && is("short_texts", "skip") ? 0 : n - length + 1;
        return IntStream.range(0, count).mapToLong(i ->
            finish(sum(0x3C6EF372FE94F82BL, copyOfRange(elements, i, i + length)))).toArray();
    }
    long[] set(long[] shingles) {  // the different hashes, ascending
        Map<Long, Integer> counts = new HashMap<>();
        return LongStream.of(shingles).map(hash -> {
            int n = is("similarity", "bag") ? counts.merge(hash, 1, Integer::sum) - 1 : 0;
            return n == 0 ? hash : finish(mix(hash + n * 0x9B05688C2B3E6C1FL));
        }).sorted().distinct().toArray();
    }
    long[] signature(long[] set) {
        return LongStream.range(0, number("permutations", 128)).map(k -> {
            long s = number("seed", 0x243F6A8885A308D3L) + (k + 1) * 0x9E3779B97F4A7C15L;
            long z = shifted(shifted(shifted(s, 30) * 0xBF58476D1CE4E5B9L, 27) * 0x94D049BB133111EBL, 31);
            return LongStream.of(set).map(hash -> (z >>> 32 | 1) * hash + z & 0xFFFFFFFFL).min().orElse(0xFFFFFFFFL);
        }).toArray();
    }
    static byte[] eliasFano(long[] set) {
        int n = set.length;
        byte[] code = Arrays.copyOf(bytes(3, set), 3 * n + (n + 262) / 8);
        for (int i = 0; i < n; i++) code[3 * n + (int) (i + (set[i] >> 24)) / 8] |= 0x80 >> (i + (set[i] >> 24)) % 8;
        return code;
    }

    // All values of the vector
    void checkAll(int offset) {
        String id = (String) vector.get("id");
        String text = vector.get("text") instanceof String given ? given : LongStream.range(0, (Long)
            vector.get("words")).mapToObj(i -> "w" + i * i % 9973).collect(Collectors.joining(" "));
        String folded = separated(fold(is("keep_urls", false) ? LINK.matcher(text).replaceAll(" ") : text));
        check("folded", shortened(folded, folded.codePointCount(0, folded.length()), 200, utf8(folded)));
        List<String> tokens = tokens(folded), words = new ArrayList<>(tokens);
        words.removeAll(stopWords);
        check("tokens", shortened(tokens, tokens.size(), 12, utf8(String.join("\n", tokens))));
        long[] all = tokenHashes(tokens), elements = tokenHashes(words);
        String characters = is("keep_white_space", false) ? folded.replace(" ", "") : folded;
        if (is("shingle_unit", "char")) all = elements = characters.codePoints().mapToLong(c -> mix(mix(c))).toArray();
        check("elements", hashes(8, all));
        long tokenCount = Math.min(words.size(), 65535), elementCount = Math.min(elements.length, 65535);
        check("token_count", tokenCount);
        check("element_count", elementCount);
        long[] shingles = shingles(elements), left = LongStream.of(shingles).filter(hash ->
            !(profile.get("stop_shingles") instanceof List<?> list && list.contains(digits(4, hash)))).toArray();
        boolean onlyStop = shingles.length > 0 && left.length == 0;
        long[] set = set(onlyStop ? shingles : left), signature = signature(set);
        check("shingles", hashes(4, set));
        check("signature", hashes(4, signature));
        check("skipped", set.length > 0 ? null : words.isEmpty() ? "empty" : "too_short");
        int bands = (int) number("bands", 9), rows = (int) number("rows", 4);
        long shards = vector.get("shards") instanceof Long given ? given : 1;
        boolean scoped = vector.containsKey("scope");
        byte[] scope = scoped ? blake2b(utf8((String) vector.get("scope")), 8) : new byte[0];
        long[] keys = scoped ? shake128(scope, bands) : new long[bands];
        for (int i = 0; i < bands; i++) keys[i] ^= crc(bytes(4, copyOfRange(signature, i * rows, (i + 1) * rows)));
        check("band_keys", hashes(4, keys));
        check("slots", IntStream.range(0, bands).mapToObj(i -> i * shards + (keys[i] * shards >>> 32)).toList());
        long number = Long.reverseBytes(words(blake2b(utf8("articles\0" + id), 8))[0]);
        check("number", Long.toString(number));
        byte[] digest = blake2b(utf8(text), 16);
        for (int i = 0; i < 16 && scoped; i++) digest[i] ^= scope[i % 8];
        check("digest", hex(digest));
        long limit = is("exact_limit", "none") ? Integer.MAX_VALUE : number("exact_limit", 8192);
        boolean estimated = set.length > limit || limit == 0;
        byte[] sketch = estimated ? bytes(4, signature) : set.length < 64 ? bytes(4, set) : eliasFano(set);
        check("sketch", shortened(hex(sketch), sketch.length, 128, sketch));
        int flags = (onlyStop ? 4 : 0) + (estimated ? 8 : 0) + (scoped ? 16 : 0);
        long[] tail = copyOfRange(elements, Math.max(0, elements.length - size + 1), elements.length);
        String entry = "20" + hex(digest) + digits(8, 1767225600000L + offset) + digits(8, offset) + sized("articles:3")
            + sized(id) + digits(1, flags) + hex(bytes(2, tokenCount, elementCount)) + digits(1, tail.length)
            + hex(bytes(4, Math.min(set.length, limit + 1))) + hex(bytes(8, tail)) + hex(scope) + hex(sketch);
        check("entry", shortened(entry, entry.length() / 2, 128, HexFormat.of().parseHex(entry)));
        String tag = "{sd:articles:" + Math.floorMod(number, bands * shards) + "}r";
        check("entry_key", hex(utf8(tag)) + digits(8, number));
        for (Object step : vector.keySet()) if (!checked.contains(step)) check(step.toString(), "no such step");
    }

    // Forms of the values
    static byte[] bytes(int length, long... values) {  // numbers of so many bytes, little-endian, joined
        byte[] bytes = new byte[values.length * length];
        for (int i = 0; i < bytes.length; i++) bytes[i] = (byte) (values[i / length] >>> 8 * (i % length));
        return bytes;
    }
    static long[] words(byte[] bytes) {  // little-endian numbers of 8 bytes, the last one filled up with zeros
        long[] words = new long[(bytes.length + 7) / 8];
        for (int i = 0; i < bytes.length; i++) words[i / 8] |= (bytes[i] & 0xFFL) << 8 * (i % 8);
        return words;
    }
    static long crc(byte[] bytes) {
        var crc = new java.util.zip.CRC32();
        crc.update(bytes);
        return crc.getValue();
    }
    static byte[] utf8(String text) { return text.getBytes(UTF_8); }
    static String hex(byte[] bytes) { return HexFormat.of().formatHex(bytes); }
    static String digits(int length, long value) { return HexFormat.of().toHexDigits(value, 2 * length); }
    static String sized(String text) { return digits(2, utf8(text).length) + hex(utf8(text)); }
    static Object hashes(int length, long[] values) {
        List<String> items = LongStream.of(values).mapToObj(value -> digits(length, value)).toList();
        return shortened(items, items.size(), 12, bytes(length, values));
    }
    static Object shortened(Object value, long length, int most, byte[] joined) {  // the form of long values
        if (length <= most) return value;
        Map<String, Object> form = new HashMap<>(Map.of("count", length, "crc32", digits(4, crc(joined))));
        if (value instanceof List<?> list) form.put("first", list.get(0));
        return form;
    }

    // BLAKE2b and SHAKE-128
    static final long[] IV = {0x6A09E667F3BCC908L, 0xBB67AE8584CAA73BL, 0x3C6EF372FE94F82BL, 0xA54FF53A5F1D36F1L,
        0x510E527FADE682D1L, 0x9B05688C2B3E6C1FL, 0x1F83D9ABFB41BD6BL, 0x5BE0CD19137E2179L};
    static final String SIGMA = "0123456789abcdefea489fd61c02b753b8c052fdae3671947931dcbe265a40f8905724afe1bc683d"
        + "2c6a0b834d75fe19c51fed4a0763928bdb7ec13950f4862a6fe9b308c2d714a5a2847615fb9e3cd0";
    static byte[] blake2b(byte[] data, int length) {
        long[] h = IV.clone();
        h[0] ^= 0x01010000 ^ length;
        for (int at = 0; at == 0 || at < data.length; at += 128) {
            long[] m = words(copyOfRange(data, at, at + 128));
            long[] v = LongStream.concat(LongStream.of(h), LongStream.of(IV)).toArray();
            v[12] ^= Math.min(at + 128, data.length);
            if (at + 128 >= data.length) v[14] = ~v[14];
            for (int i = 0; i < 12 * 16; i++) {  // halves of the function G: 2 for each of 8 in each of 12 rounds
                int shift = i / 8 % 2, a = i / 2 % 4, b = 4 + (a + shift) % 4;
                int c = 8 + (a + 2 * shift) % 4, d = 12 + (a + 3 * shift) % 4;
                v[a] += v[b] + m[Character.digit(SIGMA.charAt(i % 160), 16)];
                v[d] = Long.rotateRight(v[d] ^ v[a], i % 2 == 0 ? 32 : 16);
                v[c] += v[d];
                v[b] = Long.rotateRight(v[b] ^ v[c], i % 2 == 0 ? 24 : 63);
            }
            for (int i = 0; i < 8; i++) h[i] ^= v[i] ^ v[i + 8];
        }
        return Arrays.copyOf(bytes(8, h), length);
    }
    static long[] shake128(byte[] key, int count) {  // as numbers of 4 bytes, of a key of 8
        long[] state = Arrays.copyOf(new long[] {words(key)[0], 0x1F}, 25), numbers = new long[count];
        state[20] = 0x80L << 56;
        for (int i = 0; i < count; i++) {
            if (i % 42 == 0) keccak(state);
            numbers[i] = state[i % 42 / 2] >>> 32 * (i % 2) & 0xFFFFFFFFL;
        }
        return numbers;
    }
    static void keccak(long[] s) {
        for (int round = 0, constant = 1; round < 24; round++) {
            long[] sums = new long[5];
            for (int i = 0; i < 25; i++) sums[i % 5] ^= s[i];
            for (int i = 0; i < 25; i++) s[i] ^= sums[(i + 4) % 5] ^ Long.rotateLeft(sums[(i + 1) % 5], 1);
            long[] t = s.clone();
            for (int j = 0, from = 1, to; j < 24; j++, from = to) {
                to = from / 5 + (2 * from + 3 * (from / 5)) % 5 * 5;
                t[to] = Long.rotateLeft(s[from], (j + 1) * (j + 2) / 2);
            }
            for (int i = 0; i < 25; i++) s[i] = t[i] ^ ~t[i / 5 * 5 + (i + 1) % 5] & t[i / 5 * 5 + (i + 2) % 5];
            for (int j = 0; j < 7; j++) {
                constant = (constant << 1 ^ (constant >> 7) * 0x71) & 0xFF;
                if ((constant & 2) != 0) s[0] ^= 1L << (1 << j) - 1;
            }
        }
    }

    // JSON: strings, whole numbers, and what begins or ends a value; commas and colons are skipped
    static final Pattern JSON = Pattern.compile("\"([^\"\\\\]*+(?:\\\\.[^\"\\\\]*+)*+)\"|[\\[\\]{}]|[-\\w]+");
    static Object json(Matcher matcher) {
        matcher.find();
        String token = matcher.group(), string = matcher.group(1);
        if (string != null) return Pattern.compile("\\\\u(....)|\\\\.").matcher(string).replaceAll(escape ->
            Matcher.quoteReplacement(escape.group(1) == null ? escape.group().translateEscapes()
                : "" + (char) Integer.parseInt(escape.group(1), 16)));
        if ("[{".contains(token)) {
            List<Object> items = new ArrayList<>();
            for (Object item = json(matcher); item != matcher; item = json(matcher)) items.add(item);
            if (token.equals("[")) return items;
            Map<Object, Object> map = new LinkedHashMap<>();
            for (int i = 0; i < items.size(); i += 2) map.put(items.get(i), items.get(i + 1));
            return map;
        }
        if ("]}".contains(token)) return matcher;  // the end of a list or object
        return token.matches("true|false") ? (Object) token.equals("true") : Long.valueOf(token);
    }
}
