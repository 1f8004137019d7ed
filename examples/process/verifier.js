// Chain verification (Leviathan et al. 2023): one JSON request per line in, one answer per line out.
'use strict';
const fs = require('fs');

// Return the first index at which the cumulative sum exceeds u times the total.
function sample(weights, u) {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  let sum = 0;
  let last = 0;
  for (let token = 0; token < weights.length; token++) {
    sum += weights[token];
    if (weights[token] > 0) last = token;
    if (u * total < sum) return token;
  }
  return last; // Rounding can leave the sum slightly below u times the total.
}

// target [gamma + 1][V], draft [gamma][V], tokens [gamma], uniforms [gamma + 2]
function verify({ target, draft, tokens, uniforms }) {
  const gamma = tokens.length;
  for (let i = 0; i < gamma; i++) {
    const x = tokens[i];
    if (uniforms[i] * draft[i][x] >= target[i][x]) {
      const residual = target[i].map((p, token) => Math.max(p - draft[i][token], 0));
      return [...tokens.slice(0, i), sample(residual, uniforms[gamma])];
    }
  }
  return [...tokens, sample(target[gamma], uniforms[gamma])];
}

// In Node, readSync is faster than events, which matters for 50,000 requests.
const bytes = Buffer.alloc(65536);
let buffer = '';
for (let size; (size = fs.readSync(0, bytes)) > 0; ) {
  const lines = (buffer + bytes.toString('utf8', 0, size)).split('\n');
  buffer = lines.pop();
  for (const line of lines) {
    const request = JSON.parse(line);
    fs.writeSync(1, `${JSON.stringify({ id: request.id, tokens: verify(request) })}\n`);
  }
}
