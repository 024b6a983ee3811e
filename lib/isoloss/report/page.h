// The report page: one HTML file that needs no other.
#pragma once

#include <string>
#include <string_view>

#include "isoloss/report/json_numbers.h"

namespace isoloss::report {

/// The first line of every page, by which a later one knows that it may replace
/// it.
inline constexpr std::string_view kPageFirstLine =
    "<!DOCTYPE html><!-- isoloss report -->\n";

/// The page of PageData's object: style, data, chart.js and the scripts of
/// lib/isoloss/report/page in it. A policy in it forbids the browser to load
/// anything else, but of a live page (data.live is not null) the data from
/// where it came. No text of `data` is HTML: the title is escaped, and all
/// else is JSON, in which `<` is escaped.
std::string RenderPage(const Json& data);

}  // namespace isoloss::report
