// A document as lines for people.
#pragma once

#include <string>

#include "isoloss/document/chart.h"
#include "isoloss/document/document.h"

namespace isoloss::document {

/// "-" of no value; a number as `format` says, after the colon of fmt's.
std::string ValueText(const Value& value, const std::string& format = "");

/// Lines with their ends: titles, lines, fields, tables and charts, and those
/// of the objects that it holds. "" if none is for people.
/// Notes    a chart without a finite value is a line that says so.
std::string RenderText(const Document& document, const TextStyle& style);

/// The same of what is unbroken and without colour, whatever the terminal.
std::string RenderText(const Document& document);

}  // namespace isoloss::document
