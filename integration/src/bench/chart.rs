//! `bench.svg`: times and rates of every contestant, by calls at once and by pods that are already attached.
//! Draws what the report says.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use plotters::{coord::Shift, prelude::*};

use super::{
    measurements::{Cell, Contestant, Verb},
    report::Report,
    statistics::Summary,
};

const PANEL: (u32, u32) = (560, 340);
const PAPER: RGBColor = WHITE;
const INK: RGBColor = RGBColor(68, 68, 68);
const GRID: RGBColor = RGBColor(221, 221, 221);
/// Colours for a dark colour scheme. The colours of the lines are readable on both backgrounds.
const DARK: &str = "<style>@media (prefers-color-scheme: dark) {\
    [fill=\"#FFFFFF\"] { fill: #16181d } [fill=\"#444444\"] { fill: #d7dae0 }\
    [stroke=\"#444444\"] { stroke: #d7dae0 } [stroke=\"#DDDDDD\"] { stroke: #3a3f47 } }</style>";

/// One figure of one contestant, from left to right; `None` where it was not measured.
struct Line {
    label: String,
    colour: RGBColor,
    /// p50 and rates are drawn as thick lines, p99 as a thin one.
    full: bool,
    points: Vec<Option<f64>>,
}

struct Panel {
    title: String,
    /// Labels of the x axis.
    columns: Vec<usize>,
    under: &'static str,
    unit: &'static str,
    lines: Vec<Line>,
}

/// The chart as SVG.
pub(crate) fn svg(report: &Report) -> Result<String> {
    let panels = panels(report);
    let rows = u32::try_from(panels.len().div_ceil(2))?;
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (2 * PANEL.0, rows * PANEL.1)).into_drawing_area();
        root.fill(&PAPER).map_err(drawing)?;
        for (panel, area) in panels.iter().zip(root.split_evenly((panels.len().div_ceil(2), 2))) {
            draw(panel, &area)?;
        }
        root.present().map_err(drawing)?;
    }
    // The style goes inside the root element. An XML declaration, if there is one, comes before that element.
    let end = text.find('>').map_or(0, |end| end + 1);
    let end = if text.starts_with("<?xml") {
        text[end..].find('>').map_or(end, |next| end + next + 1)
    } else {
        end
    };
    text.insert_str(end, DARK);
    Ok(text)
}

fn panels(report: &Report) -> Vec<Panel> {
    let at_once = |verb, title: &str, unit, figures: &[Figure]| Panel {
        title: title.to_owned(),
        columns: report.size.at_once.clone(),
        under: "calls at once",
        unit,
        lines: lines(report, &report.size.at_once, figures, |at_once, contestant| Cell {
            verb,
            ports: 0,
            at_once,
            contestant,
        }),
    };
    let times = [Figure::P50, Figure::P99];
    let mut panels = vec![
        at_once(Verb::Add, "ADD: p50, and p99 thin", "ms", &times),
        at_once(Verb::Add, "ADD: rate", "a second", &[Figure::Rate]),
        at_once(Verb::Del, "DEL: p50, and p99 thin", "ms", &times),
        at_once(Verb::Del, "DEL: rate", "a second", &[Figure::Rate]),
    ];
    if report.size.ports.len() > 1 {
        panels.extend(report.size.at_once_with_ports.iter().map(|at_once| Panel {
            title: format!("ADD at {at_once} at once with other pods: p50, and p99 thin"),
            columns: report.size.ports.clone(),
            under: "other pods",
            unit: "ms",
            lines: lines(report, &report.size.ports, &times, |ports, contestant| {
                let at_once = *at_once;
                Cell { verb: Verb::Add, ports, at_once, contestant }
            }),
        }));
    }
    panels
}

#[derive(Clone, Copy, PartialEq)]
enum Figure {
    P50,
    P99,
    Rate,
}

fn lines(
    report: &Report,
    columns: &[usize],
    figures: &[Figure],
    cell: impl Fn(usize, Contestant) -> Cell,
) -> Vec<Line> {
    let contestants: BTreeSet<Contestant> = report.cells.iter().map(|found| found.cell.contestant).collect();
    let figure = |figure, summary: &Summary| match figure {
        Figure::P50 => summary.p50,
        Figure::P99 => summary.p99,
        Figure::Rate => summary.rate,
    };
    let line = |contestant: Contestant, wanted: Figure| Line {
        label: contestant.to_string(),
        colour: colour(contestant),
        full: wanted != Figure::P99,
        points: columns
            .iter()
            .map(|column| report.find(cell(*column, contestant)).map(|summary| figure(wanted, summary)))
            .collect(),
    };
    let all = contestants
        .into_iter()
        .flat_map(|contestant| figures.iter().map(move |figure| line(contestant, *figure)));
    all.filter(|line| line.points.iter().any(Option::is_some)).collect()
}

fn colour(contestant: Contestant) -> RGBColor {
    match contestant {
        Contestant::Floor => RGBColor(136, 136, 136),
        Contestant::Ours => RGBColor(46, 134, 222),
        Contestant::Bridge => RGBColor(224, 138, 0),
        Contestant::Upstream | Contestant::Emulated => RGBColor(214, 69, 122),
        Contestant::BinTrue => RGBColor(90, 160, 90),
    }
}

fn draw<B: DrawingBackend>(panel: &Panel, area: &DrawingArea<B, Shift>) -> Result<()> {
    let Panel { title, columns, under, unit, lines } = panel;
    let values: Vec<f64> = lines
        .iter()
        .flat_map(|line| line.points.iter().copied().flatten())
        .filter(|value| *value > 0.0)
        .collect();
    let (least, most) = values
        .iter()
        .fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(*value), most.max(*value)));
    if values.is_empty() {
        return Ok(());
    }
    // There are few columns: a column's index is exact as f64.
    let place = |index: usize| index as f64;
    let text = |size: u32| ("sans-serif", size).into_font().color(&INK);
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .caption(title, text(17))
        .x_label_area_size(42)
        .y_label_area_size(58)
        // The y axis is logarithmic: the contestants differ by a factor of ten and more. That needs values
        // above zero.
        .build_cartesian_2d(-0.3..place(columns.len()) - 0.7, (least * 0.7..most * 1.5).log_scale())
        .map_err(drawing)?;
    let label = |place: &f64| {
        let column = columns.iter().enumerate().find(|(index, _)| (*index as f64 - place).abs() < 0.01);
        column.map_or(String::new(), |(_, column)| column.to_string())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .label_style(text(12))
        .axis_desc_style(text(13))
        .x_labels(4 * columns.len() + 1)
        .x_label_formatter(&label)
        .y_label_formatter(&|value| if *value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") })
        .x_desc(*under)
        .y_desc(*unit)
        .draw()
        .map_err(drawing)?;
    for Line { label, colour, full, points } in lines {
        let points: Vec<(f64, f64)> =
            points.iter().enumerate().filter_map(|(index, value)| Some((place(index), (*value)?))).collect();
        let style =
            ShapeStyle { color: colour.to_rgba(), filled: *full, stroke_width: if *full { 3 } else { 1 } };
        let series = chart.draw_series(LineSeries::new(points.iter().copied(), style)).map_err(drawing)?;
        if *full {
            series.label(label).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
        }
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, style))).map_err(drawing)?;
    }
    let legend = chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(text(13))
        .margin(4)
        .draw();
    legend.map_err(drawing)
}

fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("draw the chart: {error}")
}
