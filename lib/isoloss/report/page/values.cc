#include "isoloss/report/page/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

namespace isoloss::report {
namespace {

using document::Json;

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Takes bytes and gives digits of 6 bits each.
class Base64 {
 public:
  explicit Base64(size_t bytes) { text_.reserve((bytes + 2) / 3 * 4); }

  void Add(uint8_t byte) {
    held_ = held_ << 8 | byte;
    if (++count_ < 3) return;
    for (const int shift : {18, 12, 6, 0}) Digit(held_ >> shift);
    held_ = 0;
    count_ = 0;
  }

  std::string Finish() && {
    if (count_ == 1) {
      Digit(held_ >> 2);
      Digit(held_ << 4);
      text_ += "==";
    } else if (count_ == 2) {
      Digit(held_ >> 10);
      Digit(held_ >> 4);
      Digit(held_ << 2);
      text_ += '=';
    }
    return std::move(text_);
  }

 private:
  void Digit(uint32_t bits) { text_ += kDigits[bits & 63]; }

  std::string text_;
  uint32_t held_ = 0;
  int count_ = 0;
};

template <typename T>
std::string Encode(std::span<const T> values) {
  Base64 text(4 * values.size());
  for (const T value : values) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
    for (const int shift : {0, 8, 16, 24}) {
      text.Add(static_cast<uint8_t>(bits >> shift));
    }
  }
  return std::move(text).Finish();
}

/// Returns the front of a text, without cutting a code point.
std::string_view Front(std::string_view text, size_t bytes) {
  while (bytes > 0 && (static_cast<uint8_t>(text[bytes]) & 0xc0) == 0x80) {
    --bytes;
  }
  return text.substr(0, bytes);
}

}  // namespace

std::string Float32Base64(std::span<const double> values) {
  return Encode(values);
}

std::string Float32Base64(std::span<const int64_t> values) {
  return Encode(values);
}

Json ShortNumber(double value) {
  const auto single = static_cast<float>(value);
  if (!std::isfinite(single)) return nullptr;
  // Returns the double that the shortest text of the float32 stands for,
  // because JSON then shows that text.
  return std::strtod(fmt::format("{}", single).c_str(), nullptr);
}

std::string PageJson(const Json& json) {
  const std::string text =
      json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    if (c == '<' || c == '>' || c == '&') {
      escaped += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string ClippedText(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  return std::string(Front(text, bytes)) + "[…]";
}

std::vector<size_t> SpreadRows(size_t count, size_t most) {
  std::vector<size_t> rows;
  const size_t taken = std::min(count, most);
  for (size_t i = 0; i < taken; ++i) {
    rows.push_back(taken == 1 ? 0 : i * (count - 1) / (taken - 1));
  }
  return rows;
}

bool PageBudget::Take(size_t bytes) {
  if (bytes > left_) return false;
  left_ -= bytes;
  return true;
}

bool PageBudget::Take(const Json& json) { return Take(PageJson(json).size()); }

Json PageBudget::Fit(Json json, const std::string& what) {
  if (Take(json)) return json;
  Note(fmt::format("The page leaves out {}, because it may have {} bytes.",
                   what, kMostPageBytes));
  return nullptr;
}

std::string PageBudget::Text(std::string_view text, size_t most) {
  std::string taken = ClippedText(text, most);
  size_t bytes = PageJson(Json(taken)).size();
  while (bytes > std::min(left_, text_left_) && most > 0) {
    most = std::min(most, text.size()) / 2;
    taken = ClippedText(text, most);
    bytes = PageJson(Json(taken)).size();
  }
  Take(bytes);
  text_left_ -= std::min(bytes, text_left_);
  if (taken != text) Note("Of long texts the page has the first part.");
  return taken;
}

void PageBudget::Note(const std::string& sentence) {
  if (notes_.size() == kMostNotes) return;
  if (std::ranges::count(notes_, sentence) == 0) {
    notes_.push_back(ClippedText(sentence, 1000));
  }
}

std::string PageBudget::Notes() const {
  return fmt::format("{}", fmt::join(notes_, " "));
}

}  // namespace isoloss::report
