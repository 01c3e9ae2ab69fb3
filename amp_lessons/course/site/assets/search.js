// Sections that hold all the words, or else most of them, first those whose heading has them; before them the symptom
// that people call so, what is headed just so, and the message of PyTorch's that the words are. They stand in the
// address.
(() => {
  "use strict";
  const MOST = 40;
  const FEW = 4; // with fewer sections, those that lack a word stand below them
  const NOTHING = "No section: look at Errors or at Symptoms, then";
  const field = document.getElementById("words");
  const count = document.getElementById("count");
  const list = document.getElementById("found");
  const examples = document.getElementById("examples");
  const bare = (text) => text.toLowerCase().replaceAll("-", ""); // "warmup" is "warm-up"
  const messages = window.ampMessages.map(([name, patterns, , givesWay]) => ({
    givesWay, to: `explain.html#message-${name}`,
    patterns: patterns.map(([source, flags]) => new RegExp(source, flags.replace("g", ""))),
  }));

  const SMALL = new Set(
    ("a am an and are as at be but can do does did for from get gets had has have how i if in is it its just my " +
      "of on or still than that the this to use using vs was what when why will with work works working would").split(" "),
  );
  const wordsOf = (line) => {
    const asked = line.replace(/^[\w.]*(Error|Exception|Warning): /, "").replace(/n['’]t\b/g, " not");
    const words = bare(asked).replace(/[?!,;]+(?= |$)/g, "").split(" ").filter(Boolean);
    const telling = words.filter((word) => !SMALL.has(word));
    return (telling.length ? telling : words).slice(0, 12);
  };

  const sections = window.ampSections.map(([to, kind, heading, code, text]) => ({
    to, kind, heading, code, text, inHeading: bare(`${kind} ${heading} ${code}`), inText: bare(text),
    names: heading.replace(/\(.*?\)/g, "").split(",").map((name) => wordsOf(name).join(" ")),
  }));
  const symptoms = window.ampSaid.map(([to, said]) => ({ to, said: said.map(wordsOf) }));

  // A word that is nowhere, as the word of a heading that is one letter away.
  const vocabulary = [...new Set(sections.flatMap(({ inHeading }) => inHeading.match(/\w{4,}/g) ?? []))];
  const known = new Set(symptoms.flatMap((each) => each.said.flat()));
  const mended = (word) => {
    const isSomewhere = ({ inHeading, inText }) => inHeading.includes(word) || inText.includes(word);
    if (!/^\w{4,}$/.test(word) || known.has(word) || sections.some(isSomewhere)) return word;
    const cuts = [...word].map((_, at) => [word.slice(0, at), word.slice(at)]);
    const near = cuts.map(([before, after]) => `${before}\\w${after}|${before}\\w?${after.slice(1)}`).join("|");
    const isNear = new RegExp(`^(${near})$`);
    return vocabulary.find((each) => isNear.test(each)) ?? word;
  };

  // Addresses of the symptoms that a line names, with how many of its words do, and of the messages that it is. A
  // message goes before a symptom, but not where all words name that, or where many libraries say it in words of theirs.
  const saidBy = (line, words) => {
    const found = new Map();
    for (const { to, said } of symptoms) {
      const held = said.filter((each) => each.every((word) => words.includes(word)));
      if (held.length) found.set(to, Math.max(...held.map((each) => each.length)));
    }
    for (const { to, patterns, givesWay } of messages) {
      if (patterns.some((each) => each.test(line))) found.set(to, givesWay ? 0.5 : words.length - 0.5);
    }
    return found;
  };

  const search = (words, said) => {
    const scored = sections.map((each) => {
      const held = words.filter((word) => each.inHeading.includes(word) || each.inText.includes(word)).length;
      const headed = words.filter((word) => each.inHeading.includes(word)).length;
      const often = words.reduce((sum, word) => sum + Math.min(each.inText.split(word).length - 1, 5), 0);
      const named = each.names.includes(words.join(" ")) ? words.length : 0;
      return { each, held, score: 10 * headed + often, said: Math.max(named, said.get(each.to) ?? 0) };
    });
    const most = Math.max(...scored.map(({ held, said }) => (said ? 0 : held)));
    const isFew = scored.filter(({ held, said }) => said || held === most).length < FEW;
    const enough = isFew && most > 2 ? most - 1 : most;
    const found = scored
      .filter(({ held, score, said }) => said || (score > 0 && held >= enough))
      .sort((a, b) => b.said - a.said || b.held - a.held || b.score - a.score);
    return { most, found: found.map(({ each }) => each) };
  };

  // From the beginning of the sentence that has the first of the words, or else from a word before it, to a word's end;
  // of what has a code, from what it means, of a symptom from its first question.
  const excerpt = ({ to, text, code }, words) => {
    const places = words.map((word) => text.toLowerCase().indexOf(word)).filter((place) => place >= 0);
    const whole = code || to.includes("?walk=");
    const at = places.length && !whole ? Math.min(...places) : 0;
    const begins = [...text.slice(0, at).matchAll(/[.?!:] (?=["“(]?[A-Z0-9])/g)].pop();
    const sentence = begins ? begins.index + 2 : 0;
    const from = at - sentence < 120 ? sentence : text.indexOf(" ", at - 60) + 1;
    const end = text.length - from > 200 ? text.lastIndexOf(" ", from + 200) : text.length;
    return `${from === sentence ? "" : "… "}${text.slice(from, end)}${end < text.length ? " …" : ""}`;
  };

  const small = (text, kind = "span") => {
    const made = document.createElement(kind);
    made.textContent = text;
    return made;
  };

  // A text in pieces, of which those are bold that begin with one of the words, or are it where it is short.
  const marked = (text, words) => {
    const any = words.map((word) => word.replace(/[^\w\s]/g, "\\$&") + (word.length < 4 ? "(?!\\w)" : "")).join("|");
    return text.split(new RegExp(`(?<!\\w)(${any})`, "i")).map((piece, at) => (at % 2 ? small(piece, "b") : piece));
  };

  const item = (section, words) => {
    const made = document.createElement("li");
    const link = document.createElement("a");
    const told = document.createElement("p");
    link.href = section.to;
    link.textContent = section.heading;
    told.append(...marked(excerpt(section, words), words));
    made.append(link);
    if (section.kind !== section.heading) made.append(" ", small(section.kind));
    if (section.code) made.append(" ", small(section.code, "code"));
    made.append(told);
    return made;
  };

  const show = () => {
    const line = field.value.trim().split(/\s+/).join(" ");
    const asked = wordsOf(line);
    const words = asked.map(mended);
    const { most, found } = words.length ? search(words, saidBy(line, words)) : { most: 0, found: [] };
    list.replaceChildren(...found.slice(0, MOST).map((section) => item(section, words)));
    const some = most < words.length ? ` with ${most} of these ${words.length} words` : "";
    const other = words.filter((word) => !asked.includes(word)).map((word) => ` for “${word}”`);
    const counted = `${found.length} section${found.length === 1 ? "" : "s"}${other.join("")}${some}`;
    const what = found.length ? counted : NOTHING;
    examples.hidden = words.length > 0;
    count.textContent = words.length ? (found.length > MOST ? `${what}, of which the first ${MOST}:` : `${what}.`) : "";
  };

  field.value = (new URLSearchParams(location.search).get("q") ?? "").slice(0, 200);
  field.addEventListener("input", () => {
    try {
      history.replaceState(null, "", field.value ? `?q=${encodeURIComponent(field.value)}` : location.pathname);
    } catch {}
    show();
  });
  show();
  field.focus();
})();
