// Renders a document as lines for people.
#pragma once

#include <string>

#include "isoloss/document/chart.h"
#include "isoloss/document/document.h"

namespace isoloss::document {

/// Returns the value as text: "-" if it is empty, and a number as `format`
/// says, which stands after the colon of fmt's.
std::string ValueText(const Value& value, const std::string& format = "");

/// Returns the document's titles, lines, fields, tables and charts, and those
/// of the objects that it holds. A chart without a finite value is a line that
/// says so. The text is empty if nothing is for people.
std::string RenderText(const Document& document, const TextStyle& style);

/// Renders the document without breaking lines and without colours.
std::string RenderText(const Document& document);

}  // namespace isoloss::document
