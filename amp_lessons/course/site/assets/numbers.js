// What `amp_lessons.formats` computes in Python, for what is typed in the page; `tests/course/site/test_numbers.py` holds the
// two together, code by code. An exact number is a fraction `{ negative, top, bottom }` in lowest terms: infinity is
// 1/0, NaN is 0/0. What a format is says Python (`site/float_page.py`).
window.ampNumbers = (() => {
  "use strict";

  // --- Fractions

  // The whole number nearest to a fraction, ties to even.
  const nearest = (top, bottom) => {
    const whole = top / bottom;
    const twice = 2n * (top % bottom);
    return twice > bottom || (twice === bottom && whole % 2n === 1n) ? whole + 1n : whole;
  };

  const bitLength = (whole) => (whole ? whole.toString(2).length : 0);

  const shifted = (whole, by) => (by > 0 ? whole << BigInt(by) : whole);

  const floorLog2 = (top, bottom) => {
    const estimate = bitLength(top) - bitLength(bottom);
    return shifted(top, -estimate) >= shifted(bottom, estimate) ? estimate : estimate - 1;
  };

  const reduced = (top, bottom) => {
    let [a, b] = [top, bottom];
    while (b) [a, b] = [b, a % b];
    return { top: top / a, bottom: bottom / a };
  };

  const isNaNumber = ({ top, bottom }) => !top && !bottom;

  // A double as the fraction that it is, in lowest terms.
  const exact = (number) => {
    const view = new DataView(new ArrayBuffer(8));
    view.setFloat64(0, number);
    const word = view.getBigUint64(0);
    const negative = word >> 63n === 1n && !Number.isNaN(number);
    if (!Number.isFinite(number)) return { negative, top: Number.isNaN(number) ? 0n : 1n, bottom: 0n };
    const exponent = Number((word >> 52n) & 0x7ffn);
    const mantissa = word & 0xfffffffffffffn;
    const power = Math.max(exponent, 1) - 1075;
    const significand = exponent ? mantissa | (1n << 52n) : mantissa;
    return { negative, ...reduced(shifted(significand, power), shifted(1n, -power)) };
  };

  // Steps of the grid on which a format's values lie: their spacing doubles with every power of two, and stays what
  // it is below the lowest one.
  const onGrid = (top, bottom, mantissaBits, lowestPower) => {
    const power = top ? Math.max(floorLog2(top, bottom), lowestPower) : lowestPower;
    const shift = power - mantissaBits;
    return { power, steps: Number(nearest(shifted(top, -shift), shifted(bottom, shift))) };
  };

  // The double nearest to an exact number.
  const toDouble = ({ negative, top, bottom }) => {
    const sign = negative ? -1 : 1;
    if (!bottom) return top ? sign * Infinity : NaN;
    const { power, steps } = onGrid(top, bottom, 52, -1022);
    return sign * (power > 1023 ? Infinity : steps * 2 ** (power - 52));
  };

  // --- Formats

  const kindOf = (sign, exponent, mantissa, magnitude, format) => {
    if (format.unsignedZero && sign && !magnitude) return "nan";
    if (magnitude > format.maxCode) return format.hasInfinity && !mantissa ? "inf" : "nan";
    if (exponent || !format.hasZero) return "normal";
    return mantissa ? "subnormal" : "zero";
  };

  const signBit = (format) => 2 ** (format.exponentBits + format.mantissaBits);

  // A code taken apart; `power` is that of two which its significand is multiplied by.
  const split = (code, format) => {
    const magnitude = code % signBit(format);
    const sign = Math.floor(code / signBit(format));
    const mantissa = magnitude % 2 ** format.mantissaBits;
    const exponent = (magnitude - mantissa) / 2 ** format.mantissaBits;
    const power = (format.hasZero ? Math.max(exponent, 1) : exponent) - format.bias;
    return { sign, exponent, mantissa, magnitude, power, kind: kindOf(sign, exponent, mantissa, magnitude, format) };
  };

  const decode = (code, format) => {
    const { sign, mantissa, power, kind } = split(code, format);
    if (kind === "nan") return NaN;
    const significand = mantissa + (kind === "normal" ? 2 ** format.mantissaBits : 0);
    const size = kind === "inf" ? Infinity : significand * 2 ** (power - format.mantissaBits);
    return sign ? -size : size;
  };

  const nearestCode = ({ top, bottom }, format) => {
    const { power, steps } = onGrid(top, bottom, format.mantissaBits, 1 - format.bias);
    // Codes count the steps through all powers of two, so a carry out of the mantissa needs no care
    return (power - 1 + format.bias) * 2 ** format.mantissaBits + steps;
  };

  const signed = (code, negative, format) => {
    const takesSign = format.signed && code < signBit(format) && (code > 0 || !format.unsignedZero);
    return negative && takesSign ? code + signBit(format) : code;
  };

  // The code of the value nearest to an exact number, ties to even; overflow as the format has it.
  const encode = (number, format) => {
    if (isNaNumber(number)) return format.nanCode;
    const code = number.bottom ? nearestCode(number, format) : Infinity;
    return signed(code <= format.maxCode ? code : format.beyondCode, number.negative, format);
  };

  const pattern = (code, format) => {
    const { sign, exponent, mantissa } = split(code, format);
    const fields = [[sign, format.signed], [exponent, format.exponentBits], [mantissa, format.mantissaBits]];
    const present = fields.filter(([, width]) => width);
    return present.map(([field, width]) => field.toString(2).padStart(Number(width), "0")).join(" ");
  };

  // The value that many places above or below that of a code, undefined where there is none.
  const beside = (code, by, format) => {
    const { sign, magnitude } = split(code, format);
    const position = (sign ? -magnitude : magnitude) + by;
    const last = format.maxCode + (format.hasInfinity ? 1 : 0);
    if (Math.abs(position) > last || (position < 0 && !format.signed)) return undefined;
    return decode(signed(Math.abs(position), position < 0, format), format);
  };

  // --- What rounding did

  // Of two numbers in lowest terms; the zeros are equal, and NaN is not.
  const equal = (a, b) =>
    a.top === b.top && a.bottom === b.bottom && (!a.top || a.negative === b.negative) && !isNaNumber(a);

  const outcomeOf = (number, value, format) => {
    if (isNaNumber(number)) return "nan";
    const beyond = number.bottom ? nearestCode(number, format) > format.maxCode : !format.hasInfinity;
    if (beyond) return "overflow";
    if (equal(exact(value), number)) return "exact";
    return value === 0 ? "underflow" : "rounded";
  };

  const relativeError = (number, value) => {
    const rounded = exact(value);
    if (equal(rounded, number)) return 0;
    if (!number.bottom || !rounded.bottom) return Math.abs(value - toDouble(number));
    if (!number.top) return Infinity;
    const [a, b] = [rounded, number].map((each) => (each.negative ? -each.top : each.top));
    const off = a * number.bottom - b * rounded.bottom;
    return toDouble({ negative: false, top: off < 0n ? -off : off, bottom: number.top * rounded.bottom });
  };

  // What a format makes of an exact number; where a code stands already, what that one is.
  const represent = (number, format, code = encode(number, format)) => {
    const value = decode(code, format);
    const outcome = outcomeOf(number, value, format);
    return { code, value, outcome, relativeError: relativeError(number, value), ...split(code, format) };
  };

  // --- What is typed

  class Refused extends Error {}

  const LONGEST = 400;
  const MOST_BITS = 64000;
  const BITS_PER_DIGIT = 4;
  const UNSIGNED = "(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:e[+-]?[0-9]+)?";
  const NUMBER = new RegExp(`^${UNSIGNED}$`);
  const POWER = new RegExp(`^(?:(${UNSIGNED})\\*)?(${UNSIGNED})(?:\\^|\\*\\*)\\(?([+-]?[0-9]+)\\)?$`);
  const THOUSANDS = /^[1-9][0-9]{0,2}(,[0-9]{3})+(?![0-9,])/;
  const PLAIN = { "−": "-", "–": "-", "×": "*", "·": "*", "∞": "inf" };
  const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

  const lowered = (text) =>
    [...text].map((each) => ({ "⁺": "+", "⁻": "-" })[each] ?? RAISED.indexOf(each)).join("");

  const cleaned = (text) =>
    text
      .replace(/[⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+/g, (raised) => `^${lowered(raised)}`)
      .replace(/[−–×·∞]/g, (sign) => PLAIN[sign])
      .trim()
      .toLowerCase()
      .replace(/\s*(\*\*?|\^|\/|^[+-])\s*/g, "$1");

  const tooFarOut = (text) => new Refused(`“${text}” is too far out; 1e400 overflows every format just as well.`);

  const decimal = (text) => {
    const [digits, exponent = "0"] = text.split("e");
    if (Math.abs(Number(exponent)) * BITS_PER_DIGIT > MOST_BITS) throw tooFarOut(text);
    const [whole, part = ""] = digits.split(".");
    const power = Number(exponent) - part.length;
    return reduced(BigInt(whole + part) * 10n ** BigInt(Math.max(power, 0)), 10n ** BigInt(Math.max(-power, 0)));
  };

  const divided = (top, bottom, text) => {
    if (!bottom.top) throw new Refused(`“${text}” divides by zero. Type inf for infinity.`);
    return reduced(top.top * bottom.bottom, top.bottom * bottom.top);
  };

  const raisedTo = (base, exponent, text) => {
    const { top, bottom } = decimal(base);
    const size = Math.abs(exponent);
    if ((bitLength(top) + bitLength(bottom)) * size > MOST_BITS) throw tooFarOut(text);
    const times = BigInt(size);
    const positive = { top: top ** times, bottom: bottom ** times };
    return exponent < 0 ? divided({ top: 1n, bottom: 1n }, positive, text) : positive;
  };

  const magnitudeOf = (magnitude, text) => {
    if (magnitude.includes(",") && !THOUSANDS.test(magnitude)) {
      throw new Refused(`Write “${text}” with a decimal point: a comma only separates thousands, as in 65,520.`);
    }
    const plain = magnitude.replaceAll(",", "");
    const power = POWER.exec(plain);
    if (power) {
      const factor = decimal(power[1] ?? "1");
      const raised = raisedTo(power[2], Number(power[3]), text);
      return reduced(factor.top * raised.top, factor.bottom * raised.bottom);
    }
    const slash = plain.indexOf("/");
    const parts = slash < 0 ? [plain] : [plain.slice(0, slash), plain.slice(slash + 1)];
    if (!parts.every((part) => NUMBER.test(part))) throw new Refused(`“${text}” is not a number.`);
    return divided(decimal(parts[0]), decimal(parts[1] ?? "1"), text);
  };

  const numberOf = (text) => {
    const negative = text.startsWith("-");
    const magnitude = /^[+-]/.test(text) ? text.slice(1) : text;
    if (magnitude === "nan") return { negative: false, top: 0n, bottom: 0n };
    if (["inf", "infinity"].includes(magnitude)) return { negative, top: 1n, bottom: 0n };
    return { negative, ...magnitudeOf(magnitude, text) };
  };

  const bitsOf = (fields, format) => {
    const typed = fields.split(/\s+/);
    const its = pattern(0, format).split(" ");
    if (typed.map((each) => each.length).join() !== its.map((each) => each.length).join()) {
      throw new Refused(`Bits of ${format.name} in their fields look like this: ${its.join(" ")}.`);
    }
    return `0b${typed.join("")}`;
  };

  const codeOf = (typed, format) => {
    const text = typed.replace(/[ _]/g, "");
    const digits = text[1] === "x" ? "0-9 and a-f" : "0 and 1";
    if (!/^0(x[0-9a-f]+|b[01]+)$/.test(text)) {
      throw new Refused(`“${text}” is no bit pattern: after ${text.slice(0, 2)} come the digits ${digits}.`);
    }
    if (BigInt(text) >= 1n << BigInt(format.bits)) {
      const last = `0x${(2 ** format.bits - 1).toString(16)}`;
      throw new Refused(`${text} has more bits than ${format.name} (${format.bits}); its last pattern is ${last}.`);
    }
    return Number(BigInt(text));
  };

  // What a text means: an exact number, and its code in the format; with 0x or 0b in front, or as bits in their
  // fields, it names the code. Throws `Refused`, whose message says why, for anything else.
  const parse = (text, format) => {
    let plain = cleaned(text);
    if (!plain) throw new Refused("Nothing typed yet.");
    if ([...plain].length > LONGEST) throw new Refused(`That is longer than ${LONGEST} characters.`);
    if (/^[01](\s+[01]+){1,2}$/.test(plain)) plain = bitsOf(plain, format);
    if (/^0[xb]/.test(plain)) {
      const code = codeOf(plain, format);
      return { number: exact(decode(code, format)), code, isPattern: true };
    }
    const number = numberOf(plain);
    return { number, code: encode(number, format), isPattern: false };
  };

  // --- Words, as `amp_lessons._base.text.words` has them

  const LONGEST_DECIMAL = 29;
  const SMALLEST_DECIMAL = 1e-4;

  const power = (base, exponent) =>
    `${base}${[...String(exponent)].map((each) => (each === "-" ? "⁻" : RAISED[each])).join("")}`;

  // The leading digits of a positive double, rounded to even, and the power of ten of the first one.
  const scientific = (size, count) => {
    const { top, bottom } = exact(size);
    const tens = (by) => 10n ** BigInt(Math.max(by, 0));
    let exponent = Math.floor(Math.log10(size));
    for (;;) {
      const by = count - 1 - exponent;
      const digits = String(nearest(top * tens(by), bottom * tens(-by)));
      if (digits.length === count) return { digits, exponent };
      exponent += digits.length > count ? 1 : -1;
    }
  };

  const pointed = (digits, places) => {
    const padded = digits.padStart(places + 1, "0");
    return places > 0 ? `${padded.slice(0, -places)}.${padded.slice(-places)}` : digits;
  };

  const withoutZeros = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

  // As Python's format "g" writes a double.
  const general = (number, count) => {
    const sign = number < 0 || Object.is(number, -0) ? "-" : "";
    if (Number.isNaN(number)) return "nan";
    if (!Number.isFinite(number) || number === 0) return sign + (number === 0 ? "0" : "inf");
    const { digits, exponent } = scientific(Math.abs(number), count);
    if (exponent >= -4 && exponent < count) return sign + withoutZeros(pointed(digits, count - 1 - exponent));
    return `${sign}${withoutZeros(pointed(digits, count - 1))}e${exponent}`;
  };

  // An exponent raised: "6e-8" is "6·10⁻⁸".
  const raised = (text) => {
    const [digits, exponent] = text.split("e");
    if (exponent === undefined) return text;
    const isOne = digits === "1" || digits === "-1";
    return `${isOne ? digits.slice(0, -1) : `${digits}·`}${power(10, exponent)}`;
  };

  // In at most nine digits, five with a power of ten; "…" where that is not all of it.
  const short = (number) => {
    const nine = general(number, 9);
    const text = nine.includes("e") ? general(number, 5) : nine;
    if (!Number.isFinite(number) || Number(text) === number) return raised(text);
    const [digits, exponent] = text.split("e");
    return exponent === undefined ? `${text}…` : `${digits}…·${power(10, exponent)}`;
  };

  const inPowersOfTwo = (number, mostExponent) => {
    let { negative, top, bottom } = exact(number);
    let exponent = 1 - bitLength(bottom);
    for (; top % 2n === 0n; exponent++) top /= 2n;
    const excess = Math.max(0, exponent - mostExponent);
    const count = top << BigInt(excess);
    const scale = power(2, exponent - excess);
    return `${negative ? "-" : ""}${count === 1n ? "" : `${count} × `}${scale}`;
  };

  const decimalText = (number) => {
    const { negative, top, bottom } = exact(number);
    const places = bitLength(bottom) - 1;
    return `${negative ? "-" : ""}${pointed(String(top * 5n ** BigInt(places)), places)}`;
  };

  // Exactly: as a decimal where that is short, else as "13421773 × 2⁻²⁷ ≈ 0.1".
  const exactText = (number, mostExponent = Infinity) => {
    if (!Number.isFinite(number) || number === 0) return general(number, 1);
    const text = decimalText(number);
    if (text.length <= LONGEST_DECIMAL && Math.abs(number) >= SMALLEST_DECIMAL) return text;
    return `${inPowersOfTwo(number, mostExponent)} ≈ ${raised(general(number, 5))}`;
  };

  // A relative error as a percentage where that can be read, else as "1.5·10⁻⁸".
  const relative = (error) => {
    if (error >= 1e-5 && error < 0.1) return `${general(100 * error, 2)} %`;
    const { top, bottom } = exact(100 * error);
    if (error >= 0.1 && error < 100) return `${nearest(top, bottom)} %`;
    const { digits, exponent } = scientific(error, 2);
    return `${pointed(digits, 1)}·${power(10, exponent)}`;
  };

  return { exact, equal, decode, encode, pattern, beside, represent, parse, Refused, power, short, exactText, relative };
})();
