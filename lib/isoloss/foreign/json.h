// JSON as training programs write it: with bare NaN and Infinity.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Nesting that is read; deeper is no log.
inline constexpr int kMaxJsonDepth = 64;

/// A tree of values takes some fifteen times the memory of its text.
inline constexpr size_t kMostJsonBytes = size_t{256} << 20;

/// Discarded (is_discarded()) if the text is no JSON, nests too deep or has
/// more than kMostJsonBytes. Bare NaN, Infinity and -Infinity become the
/// strings "NaN", "Infinity" and "-Infinity".
nlohmann::json ParseJson(std::string_view text);

/// Why ParseJson discards the text, to follow "the file begins as JSON, but";
/// without a point at the end. Empty if it does not.
std::string JsonFault(std::string_view text);

/// A number, or a string that spells one that JSON can't ("NaN").
std::optional<double> NumberOf(const nlohmann::json& value);
/// A whole number, also if it is written 31.0; empty beyond kMostWhole.
std::optional<int64_t> WholeOf(const nlohmann::json& value);

/// Adds `value` with the digits of its shortest form.
void AddShortest(Series& series, int64_t step, double value);

}  // namespace isoloss::foreign
