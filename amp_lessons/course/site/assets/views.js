// Views without a kernel: the same controls, drawn by the same scripts, move between states that Python has
// computed before. `window.ampViews` holds what the files of frames bring, `window.ampWidgets` the scripts.
(() => {
  "use strict";
  window.ampViews ??= {};

  // What a script of a widget asks of its model.
  const makeModel = (state) => {
    const heard = {};
    const call = (name) => (heard[name] ?? []).forEach((each) => each());
    return {
      widget_manager: null,
      get: (name) => state[name],
      on: (name, listener) => (heard[name] ??= []).push(listener),
      off: (name, listener) => (heard[name] = (heard[name] ?? []).filter((each) => each !== listener)),
      send: () => {},
      // As in a notebook, who listens hears of it at once: a slider says its own number.
      set(name, value) {
        this.touched = name;
        if (state[name] === value) return;
        state[name] = value;
        call(`change:${name}`);
        call("change");
      },
      save_changes() {
        this.moved?.(this.touched);
      },
      // Take a new state over, and tell those who listen what of it is new.
      take(next) {
        const changed = Object.keys(next).filter((name) => next[name] !== state[name]);
        for (const name of changed) state[name] = next[name];
        for (const name of changed) call(`change:${name}`);
        if (changed.length) call("change");
      },
    };
  };

  const element = (tag, className = "") => {
    const made = document.createElement(tag);
    made.className = className;
    return made;
  };

  // The few widgets of ipywidgets that views are made of.
  const own = {
    HTML({ model, el }) {
      const show = () => (el.innerHTML = model.get("value"));
      model.on("change:value", show);
      show();
    },
    Dropdown({ model, el }) {
      const label = element("label");
      const select = element("select");
      const options = () => {
        select.replaceChildren(...model.get("_options_labels").map((text) => new Option(text, text)));
        select.selectedIndex = model.get("index");
      };
      label.append(model.get("description"), " ", select);
      el.append(label);
      select.addEventListener("change", () => {
        model.set("index", select.selectedIndex);
        model.save_changes();
      });
      model.on("change:_options_labels", options);
      model.on("change:index", () => (select.selectedIndex = model.get("index")));
      options();
    },
    Button() {},
  };

  // Packed texts are put together once, when a frame wants them.
  const unpacker = ({ lines, texts }) => {
    const made = [];
    const put = ([between, ...steps]) => {
      let line = 0;
      return steps.map((step) => lines[(line += step)]).join(between);
    };
    const text = (number) => (made[number] ??= put(texts[number]));
    const unpack = (value) => {
      if (value === null || typeof value !== "object") return value;
      if (Array.isArray(value)) return value.map(unpack);
      if ("#" in value) return text(value["#"]);
      return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, unpack(each)]));
    };
    return unpack;
  };

  const load = (name) =>
    new Promise((resolve, reject) => {
      if (window.ampViews[name]) return resolve(window.ampViews[name]);
      const script = element("script");
      script.src = `frames/${name}.js`;
      script.onload = () => resolve(window.ampViews[name]);
      script.onerror = () => reject(new Error(`${script.src} is not there`));
      document.head.append(script);
    });

  // The address says where the controls stand: `?live-view.loss-scale=12&live-view.dtype=bf16`. Of what stands
  // in one, only values that a control has count; whatever else is there is left alone.
  const parameter = (name, axis) =>
    `${name.replace(/^\d\d-/, "")}.${axis.name.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;

  const asked = (name, axes, start, models) => {
    const query = new URLSearchParams(location.search);
    return axes.map((axis, i) => {
      const given = query.get(parameter(name, axis));
      if (given === null) return start[i];
      const model = models[axis.of];
      const at = axis.slider
        ? (/^-?\d{1,4}$/.test(given) ? Number(given) - model.get("min") : -1)
        : model.get("_options_labels").indexOf(given);
      return at >= 0 && at < axis.size ? at : start[i];
    });
  };

  const remember = (name, axes, start, positions, models) => {
    const query = new URLSearchParams(location.search);
    positions.forEach((at, i) => {
      const model = models[axes[i].of];
      const value = axes[i].slider ? at + model.get("min") : model.get("_options_labels")[at];
      if (at === start[i]) query.delete(parameter(name, axes[i]));
      else query.set(parameter(name, axes[i]), value);
    });
    const words = query.toString();
    try {
      history.replaceState(null, "", `${location.pathname}${words ? `?${words}` : ""}${location.hash}`);
    } catch {}
  };

  const build = (node, base, models, taken) => {
    const { of: number, kind, inside } = node;
    const el = element("div", [`amp-${kind.toLowerCase()}-widget`, ...node.classes].join(" "));
    const model = (models[number] = makeModel({ ...base[number] }));
    const render = own[kind] ?? window.ampWidgets[kind]?.render;
    if (kind === "row") el.classList.add("amp-row", "widget-hbox");
    else if (kind !== "column") render({ model, el });
    for (const each of inside) el.append(build(each, base, models, taken));
    const seen = () => (el.style.display = model.get("display") === "none" ? "none" : "");
    model.on("change:display", seen);
    seen();
    // A control that nothing follows is not shown: what it would do needs the notebook.
    if (["Field", "Button", "Slider", "Dropdown"].includes(kind) && !taken.has(number)) el.hidden = true;
    return el;
  };

  const show = async (place) => {
    const name = place.dataset.frames;
    const view = await load(name);
    const { axes, start, tree } = view;
    const unpackers = new Map();
    const unpack = (file) => unpackers.get(file) ?? unpackers.set(file, unpacker(file)).get(file);
    const base = unpack(view)(view.frames.base);
    const models = {};
    const ofControl = new Map(axes.map((axis, i) => [axis.of, i]));
    const live = build(tree, base, models, ofControl);

    const listsAt = (positions) => positions.filter((_, i) => !axes[i].slider).join("-");
    const fileOf = async (positions) => {
      const lists = listsAt(positions);
      return lists === listsAt(start) ? view : load(`${name}.${lists}`);
    };
    // What the lists choose may have shorter sliders: then they stand at their end.
    const nearest = (frames, positions) => {
      const found = positions.join(",");
      if (found in frames) return found;
      const lists = (at) => at.every((each, i) => axes[i].slider || each === positions[i]);
      const apart = (at) => at.reduce((sum, each, i) => sum + Math.abs(each - positions[i]), 0);
      const all = Object.keys(frames).filter((each) => each !== "base").map((each) => each.split(",").map(Number));
      return all.filter(lists).sort((a, b) => apart(a) - apart(b))[0].join(",");
    };

    let wanted = 0;
    const go = async (positions) => {
      const turn = ++wanted;
      const lists = listsAt(positions);
      const file = lists === listsAt(start) ? view : (window.ampViews[`${name}.${lists}`] ?? (await fileOf(positions)));
      if (turn !== wanted) return; // something newer was asked for meanwhile
      const at = nearest(file.frames, positions);
      const frame = unpack(file)(file.frames[at]);
      for (const [number, model] of Object.entries(models)) model.take({ ...base[number], ...frame[number] });
      place.dataset.at = at;
    };

    const trait = (axis) => (axis.slider ? "value" : "index");
    const lowest = (axis) => (axis.slider ? models[axis.of].get("min") : 0);
    const here = () => axes.map((axis) => models[axis.of].get(trait(axis)) - lowest(axis));
    let later = 0;
    for (const axis of axes) {
      models[axis.of].moved = () => {
        go(here());
        clearTimeout(later);
        later = setTimeout(() => remember(name, axes, start, here(), models), 300);
      };
    }

    const first = asked(name, axes, start, models);
    await go(first);
    if (view.still) {
      const said = element("p", "how");
      said.textContent = view.still;
      live.append(said);
    }
    place.replaceChildren(live);
    place.classList.add("amp-here");
  };

  // The picture of the notebook stays where the frames cannot be had, without controls.
  const begin = (place) =>
    show(place).catch((error) => {
      console.warn(`${place.dataset.frames}: ${error.message}`);
      for (const control of place.querySelectorAll("[inert]")) control.remove();
    });
  const near = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        begin(target);
      }
    },
    { rootMargin: "300px" },
  );
  // What was loaded with the page is shown before the page is laid out for the first time.
  for (const place of document.querySelectorAll(".amp-live[data-frames]")) {
    if (window.ampViews[place.dataset.frames]) begin(place);
    else near.observe(place);
  }
})();
