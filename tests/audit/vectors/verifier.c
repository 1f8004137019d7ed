/* A verifier in C that answers the test vectors, without OTM:  ./verifier [MISTAKE]

   It reads problems on standard input and writes answers on standard output, one on each line.
   MISTAKE plants the mistake with this number; `is(7)` marks the place of mistake 7.
   Compile with -DREAL=float for single precision. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef REAL
#define REAL double
#endif
#define ROWS 8
#define TOKENS 16

static int mistake;
static int is(int number) { return mistake == number; }

static REAL target[ROWS][TOKENS], draft[ROWS][TOKENS], uniforms[ROWS], factor;
static int drafts[ROWS], id, rows, n, size;

static REAL max(REAL a, REAL b) { return a > b ? a : b; }
static REAL min(REAL a, REAL b) { return a < b ? a : b; }

/* Numbers of a list, or of a list of lists, after a key; returns how many there are. */
static int numbers(const char *line, const char *key, REAL scale, REAL *out) {
    const char *at = strstr(line, key);
    int count = 0, depth = 0;
    if (!at) return 0;
    at += strlen(key);
    do {
        if (*at == '[') depth++, at++;
        else if (*at == ']') depth--, at++;
        else if (*at == ',') at++;
        else {
            char *end;
            out[count++] = (REAL)strtod(at, &end) / scale;
            at = end;
        }
    } while (depth);
    return count;
}

static void read_rows(const char *line, const char *key, REAL out[ROWS][TOKENS]) {
    REAL all[ROWS * TOKENS];
    int count = numbers(line, key, 1024, all);
    for (int i = 0; i < count; i++) out[i / size][i % size] = all[i];
}

static void read_problem(const char *line, const char *draft_key) {
    REAL list[ROWS * TOKENS];
    const char *first = strstr(line, "\"target\":[") + strlen("\"target\":[");
    int nested = *first == '[', count = numbers(line, "\"target\":", 1024, list);
    for (size = 1; *first && *first != ']'; first++) size += *first == ',';
    rows = nested ? count / size : 1;
    numbers(line, "\"id\":", 1, list), id = (int)list[0];
    n = numbers(line, "\"drafts\":", 1, list);
    for (int i = 0; i < n; i++) drafts[i] = (int)list[i];
    numbers(line, "\"uniforms\":", 4096, uniforms);
    numbers(line, "\"factor\":", 16, &factor);
    read_rows(line, "\"target\":", target);
    read_rows(line, draft_key, draft);
}

static void print_next(const REAL *weights) {
    REAL sum = 0;
    for (int x = 0; x < size; x++) sum += weights[x];
    printf("[");
    for (int x = 0; x < size; x++) printf("%s%.9g", x ? "," : "", sum ? weights[x] / sum : 0);
    printf("]");
}

static void answer(const char *name, int value, const REAL *weights) {
    printf("{\"id\":%d,\"%s\":%d,\"next\":", id, name, value);
    if (weights) print_next(weights);
    else printf("null");
    printf("}\n");
}

static void chain(void) {
    REAL next[TOKENS];
    int i = is(1) && n ? 1 : 0; /* 1: the first draft is never tested */
    for (; i < n; i++) {
        int x = drafts[i];
        REAL u = uniforms[is(2) ? 0 : i]; /* 2: one coin for all drafts */
        REAL d = draft[i][x], t = target[is(3) ? i + 1 : i][x]; /* 3: the row after the draft */
        if (is(4) ? u * d <= t : is(5) ? u * d > t : is(6) ? u * t < d : u * d < t) continue;
        break; /* 4: equality accepted; 5: comparison reversed; 6: ratio inverted */
    }
    for (int x = 0; x < size; x++) {
        int row = i == n && is(7) && n ? n - 1 : i; /* 7: bonus token from the last draft's row */
        if (is(8) && i < n) row = i + 1;            /* 8: residual of the next row */
        next[x] = target[row][x];
        if (i < n && !is(9)) next[x] -= draft[i][x]; /* 9: no residual */
        if (!is(10)) next[x] = max(next[x], 0);      /* 10: not clamped */
    }
    if (is(11) && i < n) next[drafts[i]] = 0, next[(drafts[i] + 1) % size] += 1e-2; /* 11: floor */
    answer("accepted", is(12) && i < n ? i + 1 : i, next); /* 12: counts the replacement */
}

static void block(void) {
    REAL weight[ROWS] = {1}, next[TOKENS];
    int accepted = 0;
    for (int i = 0; i < n; i++) {
        REAL r = target[i][drafts[i]] / draft[i][drafts[i]];
        if (is(20)) r = 1 / max(r, 1e-9); /* 20: ratio inverted */
        /* 21: weights without the minimum; 22: minimum of the ratio only, as in a chain */
        weight[i + 1] = is(21) ? weight[i] * r : is(22) ? weight[i] * min(r, 1) : min(weight[i] * r, 1);
    }
    for (int i = 1; i <= n; i++) {
        REAL z = 0, h = weight[i], w = is(23) ? 1 : weight[i]; /* 23: test without the weight */
        int row = is(24) ? i - 1 : i; /* 24: the test reads the row before */
        if (i < n) {
            for (int x = 0; x < size; x++) z += max(w * target[row][x] - draft[row][x], 0);
            h = z > 0 ? z / (z + 1 - w) : 0;
            if (is(25)) h = z;         /* 25: the mass itself, not its share */
            if (is(26)) h = weight[i]; /* 26: every prefix is tested by its weight */
        }
        REAL u = uniforms[is(27) ? n - i : i - 1]; /* 27: uniforms in reverse order */
        if (is(28) ? u <= h : is(29) ? u > h : u < h) accepted = i; /* 28: equality; 29: reversed */
        else if (is(30)) break; /* 30: stops at the first test that fails */
    }
    if (is(31) && accepted && accepted < n) accepted--; /* 31: off by one */
    for (int x = 0; x < size; x++) {
        REAL w = is(32) ? 1 : weight[accepted]; /* 32: residual not scaled by the weight */
        if (is(33) && accepted < n) w = weight[accepted + 1]; /* 33: weight of the next prefix */
        next[x] = target[accepted][x];
        if (accepted < n) next[x] = w * next[x] - draft[accepted][x];
        if (!is(34)) next[x] = max(next[x], 0); /* 34: not clamped */
    }
    if (is(35) && accepted == n && n) memcpy(next, target[n - 1], sizeof next); /* 35: bonus row */
    answer("accepted", accepted, next);
}

static void k_seq(void) {
    REAL next[TOKENS], b = 0, miss = 1, rho = is(40) ? 1 : factor; /* 40: factor ignored */
    REAL *t = target[0], *d = draft[0], left[TOKENS];
    memcpy(left, t, sizeof left);
    for (int i = 0; i < n; i++) {
        int x = drafts[i];
        REAL u = uniforms[is(41) ? 0 : i]; /* 41: one coin */
        REAL q = is(42) && i ? left[x] : t[x]; /* 42: later drafts against the residual */
        int pass = is(43) ? u * rho * d[x] <= q : is(44) ? u * d[x] < rho * q : u * rho * d[x] < q;
        if (is(45)) pass = u * q < rho * d[x]; /* 43: equality; 44: factor inverted; 45: ratio */
        if (pass) {
            answer("index", is(46) ? i + 1 : i, NULL); /* 46: counts from 1 */
            return;
        }
        if (is(47)) break; /* 47: only the first draft is tested */
        for (int y = 0; y < size; y++) left[y] = max(left[y] - d[y], 0);
    }
    for (int x = 0; x < size; x++) b += min(d[x], t[x] / rho);
    for (int i = 0; i < (is(48) ? 1 : n); i++) miss *= 1 - b; /* 48: residual of one draft */
    for (int x = 0; x < size; x++) {
        REAL c = b > 0 ? (1 - miss) / (rho * b) : 0;
        if (is(49)) c = 1;       /* 49: the mass that one draft could give */
        if (is(50)) c = 1 / rho; /* 50: the factor only */
        next[x] = is(51) ? t[x] - d[x] : t[x] - c * min(rho * d[x], t[x]); /* 51: chain's residual */
        next[x] = max(next[x], 0);
    }
    answer("index", -1, next);
}

static void recursive_rejection(void) {
    REAL r[TOKENS], *d = draft[0], accept = 0;
    memcpy(r, target[0], sizeof r);
    printf("{\"id\":%d,\"accept\":[", id);
    for (int i = 0; i < n && accept < 1; i++) {
        REAL sum = 0, left[TOKENS];
        accept = min(1, (is(60) ? target[0] : r)[drafts[i]] / d[drafts[i]]); /* 60: first target */
        printf("%s%.9g", i ? "," : "", accept);
        for (int x = 0; x < size; x++) sum += left[x] = max(r[x] - d[x], 0);
        for (int x = 0; x < size && sum > 0; x++) r[x] = left[x] / (is(61) ? 1 : sum); /* 61 */
    }
    printf("],\"next\":");
    print_next(r);
    printf("}\n");
}

static void walk_and_keep(void) {
    REAL s = 1, w = 1, next[ROWS][TOKENS], keep[ROWS];
    for (int i = 0; i <= n; i++) {
        REAL left = 0;
        for (int x = 0; x < size; x++) {
            REAL down = i < n ? min(s * target[i][x], w * draft[i][x]) : 0;
            if (is(70) && i < n) down = min(s * target[i][x], draft[i][x]); /* 70: W forgotten */
            left += next[i][x] = s * target[i][x] - down;
        }
        keep[i] = left > 0 ? left / (left + w - s) : 0;
        if (i == n) break;
        s = min(s * target[i][drafts[i]], w * draft[i][drafts[i]]);
        w *= draft[i][drafts[i]];
    }
    printf("{\"id\":%d,\"keep\":[", id);
    for (int i = 0; i <= n; i++) printf("%s%.9g", i ? "," : "", keep[i]);
    printf("],\"next\":[");
    for (int i = 0; i <= n; i++) printf(i ? "," : ""), print_next(next[i]);
    printf("]}\n");
}

int main(int argc, char **argv) {
    static char line[1 << 16];
    mistake = argc > 1 ? atoi(argv[1]) : 0;
    while (fgets(line, sizeof line, stdin)) {
        int walks = strstr(line, "\"rule\":\"walk and keep\"") != NULL;
        read_problem(line, walks ? "\"winner\":" : "\"draft\":");
        if (walks) walk_and_keep();
        else if (strstr(line, "\"rule\":\"chain\"")) chain();
        else if (strstr(line, "\"rule\":\"block\"")) block();
        else if (strstr(line, "\"rule\":\"k-Seq\"")) k_seq();
        else recursive_rejection();
    }
    return 0;
}
