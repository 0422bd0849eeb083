"""Rich results of Atoll's Python kernel: MIME bundles, DataFrames, matplotlib figures and charts."""
import base64
import io
import math
import sys
import warnings

METHODS = (
    ("text/html", "_repr_html_"), ("text/markdown", "_repr_markdown_"), ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"), ("image/jpeg", "_repr_jpeg_"), ("application/pdf", "_repr_pdf_"),
    ("text/latex", "_repr_latex_"), ("application/json", "_repr_json_"),
    ("application/javascript", "_repr_javascript_"),
)
MAX_DATA_CELLS = 1_000_000
SHOWN = set()


def bundle(value):
    """Returns an object's representations by MIME type."""
    if is_figure(value):
        SHOWN.add(id(value))
        return figure_bundle(value)
    mime = {"text/plain": repr(value)}
    for kind, name in METHODS:
        part = call_method(value, name)
        if part is not None:
            mime[kind] = part
    declared = call_method(value, "_repr_mimebundle_", include=None, exclude=None)
    if isinstance(declared, dict):
        mime.update(declared)
    if is_frame(value):
        add_data(mime, value)
    return {kind: clean_part(kind, part) for kind, part in mime.items() if part is not None}


def call_method(value, name, **options):
    """Calls a representation method of the object's class; a method that fails has no result."""
    method = getattr(type(value), name, None)
    if not callable(method):
        return None
    try:
        part = method(value, **options)
    except Exception:
        return None
    return part[0] if isinstance(part, tuple) and part else part


def clean_part(kind, part):
    """Makes a representation fit for JSON: bytes as base64, and no values that JSON lacks."""
    if isinstance(part, (bytes, bytearray)):
        if kind.startswith(("text/", "image/svg")):
            return bytes(part).decode("utf-8", "replace")
        return base64.b64encode(part).decode()
    return part if isinstance(part, str) else clean(part)


def clean(value, depth=0):
    """Converts a value to what JSON can hold."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if depth >= 50:
        return None
    if isinstance(value, dict):
        return {str(key): clean(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [clean(item, depth + 1) for item in value]
    if hasattr(value, "isoformat"):
        return None if value != value else value.isoformat()
    if hasattr(value, "tolist"):
        return clean(value.tolist(), depth + 1)
    return str(value)


def is_frame(value):
    """Returns whether a value is a pandas DataFrame."""
    pandas = sys.modules.get("pandas")
    return isinstance(value, getattr(pandas, "DataFrame", ()))


def add_data(mime, frame):
    """Adds E2B's `data`: the columns as lists. Frames of over a million cells have none."""
    try:
        if frame.size <= MAX_DATA_CELLS:
            mime["e2b/data"] = frame.to_dict(orient="list")
    except Exception:
        pass


def is_figure(value):
    """Returns whether a value is a matplotlib figure."""
    module = sys.modules.get("matplotlib.figure")
    return isinstance(value, getattr(module, "Figure", ()))


def figure_bundle(figure):
    """Returns a figure as PNG, text, and chart data."""
    image = io.BytesIO()
    figure.savefig(image, format="png", bbox_inches="tight", dpi="figure")
    mime = {"text/plain": repr(figure), "image/png": base64.b64encode(image.getvalue()).decode()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mime["e2b/chart"] = clean(figure_chart(figure))
    except Exception:
        pass
    return mime


def patch_pyplot(pyplot, link):
    """Makes plt.show() send figures, and box plots keep their statistics."""
    pyplot.show = lambda *_args, **_options: show_figures(pyplot, link)
    axes = sys.modules["matplotlib.axes"].Axes
    draw = axes.bxp

    def bxp(self, bxpstats, *args, **options):
        self._atoll_boxes = getattr(self, "_atoll_boxes", []) + list(bxpstats)
        return draw(self, bxpstats, *args, **options)
    axes.bxp = bxp


def show_figures(pyplot, link):
    """Sends the open figures that have not been shown, and closes them."""
    try:
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            if id(figure) not in SHOWN and figure.get_axes():
                link.result(figure_bundle(figure))
    finally:
        SHOWN.clear()
        pyplot.close("all")


def figure_chart(figure):
    """Returns E2B's chart data of a figure: one chart, or a superchart of several."""
    charts = [axes_chart(axes) for axes in figure.get_axes() if axes.get_label() != "<colorbar>"]
    if len(charts) == 1:
        return charts[0]
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) else None
    return {"type": "superchart", "title": title, "elements": charts}


def axes_chart(axes):
    """Returns the chart data of one pair of axes."""
    chart = {"type": "unknown", "title": axes.get_title() or None, "elements": []}
    for kind, extract in EXTRACTORS:
        try:
            elements = extract(axes)
            if elements:
                chart.update(type=kind, elements=elements)
                if kind != "pie":
                    chart.update(axis_labels(axes))
                if kind in ("line", "scatter"):
                    chart.update(axis_ticks(axes, "x"), **axis_ticks(axes, "y"))
                if kind in ("bar", "box_and_whisker") and is_horizontal(axes):
                    swap_axes(chart)
                return chart
        except Exception:
            continue
    return chart


def axis_labels(axes):
    """Returns labels and the units that they give in parentheses."""
    labels = {}
    for side, label in (("x", axes.get_xlabel()), ("y", axes.get_ylabel())):
        labels[f"{side}_label"] = label or None
        opening, closing = label.rfind("("), label.rfind(")")
        labels[f"{side}_unit"] = label[opening + 1:closing] if 0 <= opening < closing else None
    return labels


def swap_axes(chart):
    """Makes the categories of a horizontal chart its x axis."""
    for name in ("label", "unit"):
        chart[f"x_{name}"], chart[f"y_{name}"] = chart[f"y_{name}"], chart[f"x_{name}"]


def axis_ticks(axes, side):
    """Returns ticks, their labels, and the scale of one axis."""
    axis = getattr(axes, side + "axis")
    scale = axis_scale(axis)
    return {
        f"{side}_ticks": convert(axis.get_ticklocs(), scale),
        f"{side}_tick_labels": [label.get_text() for label in axis.get_ticklabels()],
        f"{side}_scale": scale,
    }


def axis_scale(axis):
    """Returns E2B's name of an axis's scale."""
    get = getattr(axis, "get_converter", None)
    name = type(get() if get else getattr(axis, "converter", None)).__name__
    if "Date" in name:
        return "datetime"
    return "categorical" if "Category" in name else axis.get_scale()


def convert(values, scale):
    """Converts coordinates; dates become ISO text."""
    values = list(values)
    if scale == "datetime":
        dates = sys.modules["matplotlib.dates"]
        return [v.isoformat() if hasattr(v, "isoformat") else iso(v, dates) for v in values]
    return [v if isinstance(v, str) else float(v) for v in values]


def iso(value, dates):
    """Returns a date, a numpy date or matplotlib's day number as ISO text."""
    number = value if isinstance(value, (int, float)) else dates.date2num(value)
    return dates.num2date(number).replace(tzinfo=None).isoformat()


def points(axes, xs, ys):
    """Returns pairs of coordinates."""
    return list(zip(convert(xs, axis_scale(axes.xaxis)), convert(ys, axis_scale(axes.yaxis))))


def named(label, fallback, number):
    """Returns a label, or a fallback for the labels that matplotlib makes up."""
    label = str(label)
    return f"{fallback} {number}" if not label or label.startswith("_") else label


def extract_boxes(axes):
    """Extracts box plots from the statistics that were drawn."""
    ticks = [text.get_text() for text in (axes.get_yticklabels() if is_horizontal(axes) else axes.get_xticklabels())]
    boxes = []
    for number, box in enumerate(getattr(axes, "_atoll_boxes", [])):
        tick = ticks[number] if number < len(ticks) else str(number + 1)
        boxes.append({
            "label": str(box.get("label") or tick), "min": box["whislo"], "first_quartile": box["q1"],
            "median": box["med"], "third_quartile": box["q3"], "max": box["whishi"],
            "outliers": list(box.get("fliers", [])),
        })
    return boxes


def extract_pie(axes):
    """Extracts pie slices."""
    wedges = [patch for patch in axes.patches if type(patch).__name__ == "Wedge"]
    return [{"label": wedge.get_label(), "angle": abs(wedge.theta2 - wedge.theta1), "radius": wedge.r} for wedge in wedges]


def bar_containers(axes):
    """Returns the groups of bars."""
    return [group for group in axes.containers if type(group).__name__ == "BarContainer" and len(group)]


def is_horizontal(axes):
    """Returns whether bars or boxes lie."""
    groups = bar_containers(axes)
    if groups:
        return getattr(groups[0], "orientation", "vertical") == "horizontal"
    boxes = getattr(axes, "_atoll_boxes", [])
    lines = [line for line in axes.lines if len(line.get_xdata()) == 2]
    medians = [line for line in lines if boxes and list(line.get_xdata()) == [boxes[0]["med"]] * 2]
    return bool(medians)


def extract_bars(axes):
    """Extracts bars: category, group and value."""
    flat, bars = is_horizontal(axes), []
    ticks = category_ticks(axes.yaxis if flat else axes.xaxis, 1 if flat else 0)
    for number, group in enumerate(bar_containers(axes)):
        for bar in group:
            start, size = (bar.get_y(), bar.get_height()) if flat else (bar.get_x(), bar.get_width())
            middle = float(start + size / 2)
            bars.append({
                "label": category(ticks, middle, size), "group": named(group.get_label(), "Group", number),
                "value": float(bar.get_width() if flat else bar.get_height()),
            })
    return bars


def category_ticks(axis, side):
    """Returns the labels of an axis by position, if they are names and not numbers."""
    if type(axis.get_major_formatter()).__name__ not in ("FixedFormatter", "FuncFormatter", "StrCategoryFormatter"):
        return {}
    return {float(label.get_position()[side]): label.get_text() for label in axis.get_ticklabels()}


def category(ticks, middle, size):
    """Returns the label of the tick nearest to a bar, or the bar's position."""
    nearest = min(ticks, key=lambda tick: abs(tick - middle), default=None)
    if nearest is not None and abs(nearest - middle) <= max(abs(size), 0.5) and ticks[nearest]:
        return ticks[nearest]
    return f"{middle:g}"


def extract_lines(axes):
    """Extracts lines."""
    return [
        {"label": named(line.get_label(), "Line", number), "points": points(axes, *line.get_data(orig=True))}
        for number, line in enumerate(axes.lines)
    ]


def extract_scatter(axes):
    """Extracts scattered points."""
    groups = [group for group in axes.collections if type(group).__name__ == "PathCollection"]
    found = []
    for number, group in enumerate(groups):
        offsets = [pair for pair in group.get_offsets().tolist() if None not in pair]
        xs, ys = [x for x, _ in offsets], [y for _, y in offsets]
        found.append({"label": named(group.get_label(), "Dataset", number), "points": points(axes, xs, ys)})
    return found


EXTRACTORS = (
    ("box_and_whisker", extract_boxes), ("pie", extract_pie), ("bar", extract_bars),
    ("line", extract_lines), ("scatter", extract_scatter),
)
