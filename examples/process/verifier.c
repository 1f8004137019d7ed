/* Chain verification (Leviathan et al. 2023): one JSON request per line in, one answer per line out.
   The keys of a request have a fixed order and no spaces, so strtod can read it without a parser:
   {"id":7,"target":[[...],...],"draft":[[...],...],"tokens":[...],"uniforms":[...]}
   Build it with:  cc -O2 -o verifier verifier.c -lm */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Read the numbers in the value of a key; count its rows, unless `rows` is NULL. */
static int read_numbers(const char *line, const char *key, double *out, int *rows) {
    const char *c = strstr(line, key) + strlen(key);
    int count = 0, depth = 0;
    if (rows) *rows = 0;
    do {
        if (*c == '[') depth++, c++;
        else if (*c == ']') { depth--, c++; if (rows && depth == 1) ++*rows; }
        else if (*c == ',') c++;
        else out[count++] = strtod(c, (char **)&c);
    } while (depth > 0);
    return count;
}

/* Return the first index at which the cumulative sum exceeds u times the total. */
static int sample(const double *weights, int size, double u) {
    double total = 0, sum = 0;
    int last = 0;
    for (int i = 0; i < size; i++) total += weights[i];
    for (int i = 0; i < size; i++) {
        sum += weights[i];
        if (weights[i] > 0) last = i;
        if (u * total < sum) return i;
    }
    return last; /* Rounding can leave the sum slightly below u times the total. */
}

int main(void) {
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    while ((length = getline(&line, &room, stdin)) > 0) {
        double *target = malloc(5 * length * sizeof *target); /* room for five arrays of `length` numbers */
        double *draft = target + length, *tokens = draft + length, *uniforms = tokens + length;
        double *residual = uniforms + length;
        int rows, vocabulary = read_numbers(line, "\"target\":", target, &rows) / rows;
        read_numbers(line, "\"draft\":", draft, NULL);
        int gamma = read_numbers(line, "\"tokens\":", tokens, NULL), i, last;
        read_numbers(line, "\"uniforms\":", uniforms, NULL);
        printf("{\"id\":%ld,\"tokens\":[", strtol(strstr(line, "\"id\":") + 5, NULL, 10));
        for (i = 0; i < gamma; i++) {
            const double *t = target + i * vocabulary, *d = draft + i * vocabulary;
            int x = (int)tokens[i];
            if (uniforms[i] * d[x] >= t[x]) {
                for (int v = 0; v < vocabulary; v++) residual[v] = fmax(t[v] - d[v], 0);
                break;
            }
            printf("%d,", x);
        }
        last = sample(i < gamma ? residual : target + gamma * vocabulary, vocabulary, uniforms[gamma]);
        printf("%d]}\n", last);
        fflush(stdout);
        free(target);
    }
    free(line);
    return 0;
}
