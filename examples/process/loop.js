// A decoding loop: it drafts gamma tokens and verifies them, until it has max_tokens tokens.
// The audit plays both models. The loop waits for each answer, so it reads with fs.readSync.
'use strict';
const fs = require('fs');

let buffer = '';

// Return the next line of standard input as an object, or null at its end.
function read() {
  const bytes = Buffer.alloc(65536);
  while (!buffer.includes('\n')) {
    const size = fs.readSync(0, bytes);
    if (size === 0) return null;
    buffer += bytes.toString('utf8', 0, size);
  }
  const end = buffer.indexOf('\n');
  const line = buffer.slice(0, end);
  buffer = buffer.slice(end + 1);
  return JSON.parse(line);
}

const write = (message) => fs.writeSync(1, `${JSON.stringify(message)}\n`);

function ask(message) {
  write(message);
  return read();
}

// Return the distributions after the last `rows` prefixes of the tokens, the shortest first.
const rowsOf = (model, tokens, rows) => ask({ model, tokens, rows }).probs;
const uniforms = (count) => ask({ uniforms: count }).uniforms;

function sample(weights, u) {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  let sum = 0;
  let last = 0;
  for (let token = 0; token < weights.length; token++) {
    sum += weights[token];
    if (weights[token] > 0) last = token;
    if (u * total < sum) return token;
  }
  return last;
}

function decode({ prompt, gamma, max_tokens: maxTokens }) {
  const text = [...prompt];
  while (text.length < prompt.length + maxTokens) {
    const start = text.length;
    const draft = [];
    const coins = uniforms(2 * gamma + 1);
    for (let i = 0; i < gamma; i++) {
      draft.push(rowsOf('draft', text, 1)[0]);
      text.push(sample(draft[i], coins[i]));
    }
    const target = rowsOf('target', text, gamma + 1);
    let next = target[gamma];
    for (let i = 0; i < gamma; i++) {
      const x = text[start + i];
      if (coins[gamma + i] * draft[i][x] >= target[i][x]) {
        next = target[i].map((p, token) => Math.max(p - draft[i][token], 0));
        text.length = start + i;
        break;
      }
    }
    text.push(sample(next, coins[2 * gamma]));
  }
  return text.slice(prompt.length, prompt.length + maxTokens);
}

for (let request = read(); request !== null; request = read()) {
  write({ id: request.id, tokens: decode(request) });
}
