// One number in all formats: typed, or made of bits that are flipped; the address follows.
(() => {
  "use strict";
  const { exact, equal, decode, encode, pattern, beside, represent, parse, Refused } = window.ampNumbers;
  const { power, short, exactText, relative } = window.ampNumbers;
  const at = (id) => document.getElementById(id);
  const shown = window.ampFormats.filter(({ name }) => at(`format-${name}`)); // a lesson shows some of them
  const formats = new Map(shown.map((format) => [format.name, format]));

  // --- What is said, as the notebook's `BitView` says it

  const lostItsSign = (found, number, format) =>
    !format.signed && number.negative && number.top > 0n && found.outcome === "rounded";

  const describeError = (found, number, format) => {
    const { value, outcome } = found;
    if (outcome === "nan") return Number.isNaN(value) ? "nan" : "has no nan";
    if (outcome === "overflow") return `overflow, ${Number.isFinite(value) ? "stops at" : "becomes"} ${short(value)}`;
    if (outcome === "underflow") return "becomes zero";
    if (outcome === "exact") return "exact";
    if (found.relativeError === Infinity) return "has no zero";
    return lostItsSign(found, number, format) ? "has no sign" : relative(found.relativeError);
  };

  const isOff = (found, number, format) =>
    found.outcome === "rounded" && Number.isFinite(found.relativeError) && !lostItsSign(found, number, format);

  const became = (found, number, format, text) => {
    const nearest = exactText(found.value);
    if (found.outcome === "overflow") return `${text} is beyond ${format.name}, which makes it ${nearest}.`;
    if (found.outcome === "underflow") return `${text} is too small for ${format.name}, which makes it ${nearest}.`;
    if (!isOff(found, number, format)) return `${format.name} ${describeError(found, number, format)}.`;
    return `The ${format.name} value nearest to ${text} is off by ${relative(found.relativeError)}.`;
  };

  // Beside a subnormal, values are multiples of the smallest one.
  const valueText = (found, value, format) =>
    exactText(value, found.kind === "subnormal" ? 1 - format.bias - format.mantissaBits : Infinity);

  const product = ({ sign, power: of, kind, mantissa }, format) => {
    const scale = `${sign ? "−" : ""}${power(2, of)}`;
    const significand = `${kind === "normal" ? 1 : 0} + ${mantissa}/${2 ** format.mantissaBits}`;
    return format.mantissaBits ? `${scale} × (${significand})` : scale;
  };

  const isWhat = (found, format) => {
    const bits = `${format.name} ${pattern(found.code, format)} is`;
    if (found.kind === "nan") return `${bits} NaN (${format.specials}).`;
    if (found.kind === "zero" || found.kind === "inf") {
      return `${bits} ${found.sign ? "minus " : ""}${found.kind === "zero" ? "zero" : "infinity"}.`;
    }
    return `${bits} ${found.kind}: ${product(found, format)} = ${valueText(found, found.value, format)}.`;
  };

  const neighbours = (found, format) => {
    if (!Number.isFinite(found.value)) return [];
    const values = [-1, 1].map((by) => beside(found.code, by, format)).filter((value) => value !== undefined);
    const names = values.map((value) => valueText(found, value, format)).join(" and ");
    const which = values.length === 2 ? "neighbours" : "only neighbour";
    return [`Its ${which}: ${names}; spacing ${power(2, found.power - format.mantissaBits)}.`];
  };

  const describe = (found, number, format, text) => {
    const isSame = equal(exact(found.value), number) || (found.outcome === "nan" && found.kind === "nan");
    const first = isSame ? [] : [became(found, number, format, text)];
    return [...first, isWhat(found, format), ...neighbours(found, format)].join(" ");
  };

  // --- The page

  const field = at("value");
  const chosen = at("format");
  const start = { text: field.value, format: formats.get(chosen.value) };

  // The buttons are those of the notebook; this is what their script asks of a model.
  const modelOf = (format, flipped) => {
    const state = { label: format.label, fields: format.fields, bits: "0".repeat(format.bits) };
    let shown = () => {};
    return {
      get: (name) => state[name],
      set: (name, value) => (state[name] = value),
      on: (_, listener) => (shown = listener),
      save_changes: () => flipped(parseInt(state.bits, 2)),
      show(code) {
        state.bits = code.toString(2).padStart(format.bits, "0");
        shown();
      },
    };
  };

  const textOf = (value) => (Number.isFinite(value) && !Object.is(value, -0) ? String(value) : short(value));

  const rows = [...formats.values()].map((format) => {
    const section = at(`format-${format.name}`);
    const flipped = (code) => {
      const value = decode(code, format);
      field.value = textOf(value);
      take({ text: field.value, number: exact(value), code, format, isPattern: false });
    };
    const model = modelOf(format, flipped);
    window.ampWidgets.BitRow.render({ model, el: section.querySelector(".bits") });
    return { format, section, model, became: section.querySelector(".became") };
  });

  let here;

  const showRow = ({ format, section, model, became: told }, { number, code, format: its }) => {
    const found = represent(number, format, format === its ? code : undefined);
    const off = isOff(found, number, format) ? "off by " : "";
    model.show(found.code);
    told.textContent = `${exactText(found.value)}: ${off}${describeError(found, number, format)}`;
    told.classList.toggle("lost", found.outcome === "overflow" || found.outcome === "underflow");
    section.classList.toggle("chosen", format === its);
    return found;
  };

  const show = (state) => {
    here = state;
    chosen.value = state.format.name;
    refuse("");
    const found = rows.map((row) => showRow(row, state));
    const its = found[rows.findIndex(({ format }) => format === state.format)];
    at("said").textContent = describe(its, state.number, state.format, state.text.trim());
  };

  const refuse = (words) => {
    at("refused").textContent = words;
    field.setAttribute("aria-invalid", String(Boolean(words)));
  };

  // The text names the code, but for a NaN that is not the usual one.
  const query = ({ text, number, code, format }) => {
    const isUsual = encode(number, format) === code;
    const words = new URLSearchParams(location.search);
    words.set("format", format.name);
    words.set("value", isUsual ? text.trim() : `0x${code.toString(16)}`);
    return `?${words}`;
  };

  let later = 0;
  const take = (state) => {
    show(state);
    clearTimeout(later);
    later = setTimeout(() => {
      try {
        history.replaceState(null, "", `${location.pathname}${query(state)}${location.hash}`);
      } catch {}
    }, 300);
  };

  const understand = (text, format) => ({ text, format, ...parse(text, format) });

  const typed = () => {
    try {
      take(understand(field.value, formats.get(chosen.value)));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      refuse(error.message);
    }
  };
  field.addEventListener("input", typed);
  chosen.addEventListener("change", () => {
    if (here.isPattern) field.value = textOf(decode(here.code, here.format));
    typed();
  });

  // What an address asks for; of what stands in one, only a format and a number count.
  const asked = (address) => {
    const words = new URLSearchParams(address);
    const format = formats.get(words.get("format")) ?? start.format;
    try {
      return understand(words.get("value") ?? start.text, format);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      return understand(start.text, format);
    }
  };

  const go = (address) => {
    const state = asked(address);
    field.value = state.text;
    show(state);
  };
  go(location.search);
  window.ampFloat = { describe, describeError, go };
})();
