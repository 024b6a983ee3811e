// Writes number formats as text and as JSON, for `isoloss lab formats`.
#pragma once

#include <span>
#include <string>

#include "isoloss/document/chart.h"
#include "isoloss/document/json.h"
#include "isoloss/formats/format.h"

namespace isoloss::report {

/// Returns a table with name, bits, range and specials, and the source below
/// each format.
std::string RenderFormats(std::span<const formats::Format* const> all,
                          const document::TextStyle& style);

/// Returns all of one format: its range in exact decimals, its values on a log
/// axis, and each binade's spacing and worst relative error with its values.
std::string RenderFormat(const formats::Format& format,
                         const document::TextStyle& style);

document::Json FormatJson(const formats::Format& format);

}  // namespace isoloss::report
