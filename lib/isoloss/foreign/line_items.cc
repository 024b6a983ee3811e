#include "isoloss/foreign/line_items.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "isoloss/foreign/foreign_run.h"
#include "isoloss/foreign/table_names.h"

namespace isoloss::foreign {
namespace {

bool IsDigit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}
bool IsLetter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}
bool IsQuote(char c) { return c == '"' || c == '\''; }
/// Returns whether a name or number may go on with `c`.
bool IsInner(char c) {
  return IsDigit(c) || IsLetter(c) || c == '_' || c == '.' || c == '@' ||
         static_cast<unsigned char>(c) >= 0x80;
}

/// A name may have a part of this length in parentheses: "time (ms)".
constexpr size_t kLongestPart = 12;
/// No number and no value of a type is longer: "tensor(2.5, device='cuda:0')".
constexpr size_t kLongestValue = 400;

/// Takes items from a line, from number to number.
class Scanner {
 public:
  explicit Scanner(std::string_view line) : line_(line) {}

  std::vector<LineItem> Items() {
    while (at_ < line_.size()) {
      if (BeginsNumber()) {
        TakeNumber();
      } else if (line_[at_] == '(' && at_ > 0 && IsInner(line_[at_ - 1])) {
        SkipPartOfName();
      } else if (line_[at_] == ':' || line_[at_] == '=') {
        TakeSign();
      } else {
        ++at_;
      }
    }
    return std::move(items_);
  }

 private:
  char At(size_t i) const { return i < line_.size() ? line_[i] : '\0'; }

  /// Finds the parenthesis that closes within `length` from `at` on. A search
  /// of the whole line would make its time grow with its length's square.
  size_t Close(size_t at, size_t length) const {
    const size_t place = line_.substr(at, length).find(')');
    return place == line_.npos ? place : at + place;
  }

  bool BeginsNumber() const {
    const char before = at_ > 0 ? line_[at_ - 1] : ' ';
    if (IsInner(before) || before == '/' || before == '-') return false;
    const char c = line_[at_];
    const bool sign = c == '-' || c == '+';
    const char first = sign ? At(at_ + 1) : c;
    if (IsDigit(first) || (first == '.' && IsDigit(At(at_ + (sign ? 2 : 1))))) {
      return true;
    }
    if (!sign && !IsLetter(c)) return false;
    size_t end = at_ + (sign ? 1 : 0);
    while (IsInner(At(end)) && At(end) != '.') ++end;
    const std::string_view word = line_.substr(at_, end - at_);
    constexpr size_t kLongest = 9;  // "-infinity"
    return word.size() >= 3 && word.size() <= kLongest &&
           (ParsePlainNumber(word).has_value()) && At(end) != '=' &&
           At(end) != ':';
  }

  /// Skips the parentheses of "lr(1e-3):".
  void SkipPartOfName() {
    const size_t close = Close(at_, kLongestPart);
    const bool sign = At(close + 1) == ':' || At(close + 1) == '=';
    at_ = close != line_.npos && sign ? close : at_ + 1;
  }

  /// Skips what is no number: a date, a clock, a version.
  void SkipGarbage() {
    constexpr std::string_view kJoints = "-+:/,";
    while (at_ < line_.size() &&
           (IsInner(line_[at_]) || (kJoints.find(line_[at_]) != kJoints.npos &&
                                    IsDigit(At(at_ + 1))))) {
      ++at_;
    }
    edge_ = at_;
  }

  bool IsClock(size_t end) const {
    return At(end) == ':' && IsDigit(At(end + 1));
  }

  /// Adds an item that ends at at_.
  void Push(LineItem& item) {
    const size_t last = items_.empty() ? 0 : items_.back().end;
    if (item.begin > last) item.gap = line_.substr(last, item.begin - last);
    item.end = edge_ = at_;
    items_.push_back(item);
  }

  void TakeNumber() {
    const std::string_view rest = line_.substr(at_);
    const auto number = LeadingNumber(rest);
    const size_t end =
        number ? at_ + static_cast<size_t>(number->text.data() +
                                           number->text.size() - rest.data())
               : at_;
    if (number && number->text.ends_with(',')) return SkipGarbage();
    if (!number || IsClock(end)) {
      if (LossHere(rest)) return;
      return SkipGarbage();
    }
    LineItem item;
    item.number = number;
    item.word = rest.substr(0, kLongestValue);
    item.word = item.word.substr(0, item.word.find_first_of(" \t"));
    FindNameOf(item);
    size_t behind = end;
    item.percent = At(end) == '%';
    item.is_count = number->text.find_first_not_of("0123456789,") ==
                        std::string_view::npos &&
                    number->value <= static_cast<double>(kMostWhole) &&
                    !item.percent;
    if (item.is_count) TakeTotal(item, behind);
    if (item.is_count && IsDate(item, behind)) {
      at_ = behind;
      return SkipGarbage();
    }
    const Quantity quantity = FindName(item.name).quantity;
    if (quantity != Quantity::kLoss && quantity != Quantity::kEvalLoss) {
      MultiplyOut(item, behind);
    }
    at_ = behind;
    SkipUnit();
    TakeSecond(item);
    Push(item);
  }

  /// A loss may be text that begins like a number: "loss: 4,70386", "1.#INF".
  bool LossHere(std::string_view rest) {
    LineItem item;
    FindNameOf(item);
    item.word = TakeWord(rest);
    const bool written = item.has_sign || item.word.find(',') != rest.npos;
    if (!written || FindName(item.name).quantity != Quantity::kLoss) {
      return false;
    }
    at_ = static_cast<size_t>(rest.data() - line_.data());
    Push(item);
    return true;
  }

  /// Takes " / 90" of "3 / 90", and "/???".
  void TakeTotal(LineItem& item, size_t& behind) const {
    size_t i = behind;
    while (IsBlank(At(i))) ++i;
    if (At(i) != '/') return;
    ++i;
    while (IsBlank(At(i))) ++i;
    size_t end = i;
    while (IsDigit(At(end)) || (At(end) == ',' && IsDigit(At(end + 1)))) ++end;
    if (At(i) == '?') {
      while (At(end) == '?') ++end;
    }
    if (end == i) return;
    const auto total = ParseNumber(line_.substr(i, end - i));
    item.has_total = true;
    item.total = total && *total >= 0 && *total <= 0x1p40
                     ? static_cast<int64_t>(*total)
                     : 0;
    behind = end;
    constexpr std::string_view kTotalEnds = ".";  // "10.0it/70.0it" is no pair
    if (kTotalEnds.find(At(end)) != std::string_view::npos && At(end) != '\0' &&
        IsDigit(At(end + 1))) {
      item.has_total = false;
      item.total = 0;
    }
  }

  /// "06/16 08:23:02" and "2023/06/16" are dates, but "10/16 0:00:12" is a bar.
  bool IsDate(const LineItem& item, size_t behind) const {
    if (!item.has_total) return false;
    if (At(behind) == '/') return true;
    constexpr size_t kShort = 5;  // "06/16"
    if (!item.name.empty() || behind - at_ != kShort) return false;
    size_t i = behind;
    while (IsBlank(At(i)) || At(i) == ',') ++i;
    return IsDigit(At(i)) && IsDigit(At(i + 1)) && IsClock(i + 2);
  }

  void MultiplyOut(LineItem& item, size_t& behind) const {
    constexpr std::string_view kSuffixes = "kKMBGT";
    constexpr double kFactors[] = {1e3, 1e3, 1e6, 1e9, 1e9, 1e12};
    const char c = At(behind);
    const size_t place = c == '\0' ? kSuffixes.npos : kSuffixes.find(c);
    if (place == kSuffixes.npos || IsInner(At(behind + 1))) return;
    item.number->value *= kFactors[place];
    item.is_count = false;
    ++behind;
  }

  void SkipUnit() {
    constexpr std::string_view kEnds = " \t,;|()[]{}'\"<>";
    while (at_ < line_.size() && kEnds.find(line_[at_]) == kEnds.npos &&
           static_cast<unsigned char>(line_[at_]) < 0x80) {
      ++at_;
    }
  }

  /// Skips "(4.6)" or "( 97%)" behind a number.
  void TakeSecond(LineItem& item) {
    size_t i = at_;
    while (IsBlank(At(i))) ++i;
    if (At(i) != '(') return;
    size_t first = i + 1;
    while (IsBlank(At(first))) ++first;
    if (!IsDigit(At(first)) && At(first) != '-' && At(first) != '+') return;
    const size_t close = Close(first, kLongestValue);
    if (close == line_.npos) return;
    item.has_second =
        line_.substr(first, close - first).find('%') == line_.npos;
    at_ = close + 1;
  }

  /// Takes "split: val", and a loss that is no number.
  void TakeSign() {
    const size_t sign = at_++;
    size_t i = at_;
    while (IsBlank(At(i)) || IsQuote(At(i))) ++i;
    std::string_view rest = WithoutType(line_.substr(i));
    if (rest.data() != line_.data() + i) {
      at_ = static_cast<size_t>(rest.data() - line_.data());
      LineItem typed;
      return TakeTyped(typed, sign);
    }
    if (i >= line_.size() || IsDigit(At(i)) || At(i) == '[' || At(i) == '(') {
      return;
    }
    const size_t kept = std::exchange(at_, i);
    LineItem item;
    FindNameOf(item);
    at_ = i;
    const bool number = BeginsNumber();
    at_ = kept;
    const bool loss = FindName(item.name).quantity == Quantity::kLoss;
    if (number || (!loss && !IsPhaseName(item.name))) return;
    item.word = TakeWord(rest);
    if (item.word.empty()) return;
    at_ = static_cast<size_t>(rest.data() - line_.data());
    Push(item);
  }

  /// Takes the number of "np.float64(1.5)", whose name ends at `sign`.
  void TakeTyped(LineItem& item, size_t sign) {
    const std::string_view rest = line_.substr(at_);
    item.number = LeadingNumber(rest);
    if (!item.number) return;
    item.word = item.number->text;
    NameUpTo(sign, item);
    item.has_sign = true;
    at_ += item.number->text.size();
    const size_t close = Close(at_, kLongestValue);
    at_ = close == line_.npos ? at_ : close + 1;
    Push(item);
  }

  /// Finds the name before the number at at_.
  void FindNameOf(LineItem& item) const {
    size_t end = at_;
    const auto skip = [this, &end](std::string_view some) {
      while (end > edge_ && some.find(line_[end - 1]) != some.npos) --end;
    };
    item.begin = at_;
    skip(" \t");
    skip("\"'");
    if (end > edge_ && line_[end - 1] == '[') {
      --end;
      item.has_sign = true;
    }
    skip(" \t");
    if (end > edge_ && (line_[end - 1] == ':' || line_[end - 1] == '=')) {
      --end;
      item.has_sign = true;
    }
    NameUpTo(end, item);
    constexpr std::string_view kVerb = " is";
    if (!item.has_sign && item.name.ends_with(kVerb)) {
      item.name.remove_suffix(kVerb.size());
    }
  }

  /// The name is all words back to a mark that no name has.
  void NameUpTo(size_t end, LineItem& item) const {
    constexpr std::string_view kMarks = "|,;\t[]{}<>\"'%:=(*#!?";
    while (end > edge_ && IsBlank(line_[end - 1])) --end;
    const bool closed = end > edge_ && IsQuote(line_[end - 1]);
    if (closed) --end;
    size_t begin = end;
    while (begin > edge_) {
      const char c = line_[begin - 1];
      if (c == ')') {
        const size_t from =
            std::max(edge_, begin - std::min(begin, kLongestPart));
        const size_t open = line_.substr(from, begin - from).rfind('(');
        if (open == line_.npos) break;
        begin = from + open;
        continue;
      }
      const bool dash = begin - edge_ >= 2 && c == ' ' &&
                        (line_[begin - 2] == '-' || line_[begin - 2] == ' ');
      if (kMarks.find(c) != kMarks.npos || dash ||
          static_cast<unsigned char>(c) >= 0x80) {
        break;
      }
      --begin;
    }
    // In a string of a program that reads logs, no quote ends the name.
    if (begin > 0 && IsQuote(line_[begin - 1]) && !closed) return;
    std::string_view name = Trimmed(line_.substr(begin, end - begin));
    while (!name.empty() && !IsLetter(name.front()) && name.front() != '_') {
      name.remove_prefix(1);
    }
    constexpr size_t kLongest = 120;
    if (name.size() > kLongest) return;
    item.name = WithoutLevel(name);
    if (!item.name.empty()) {
      item.begin = static_cast<size_t>(item.name.data() - line_.data());
    }
  }

  /// Removes words of a logger before a name: "INFO loss".
  static std::string_view WithoutLevel(std::string_view name) {
    constexpr std::string_view kLevels[] = {"INFO", "DEBUG", "WARNING", "root",
                                            "metrics"};
    while (true) {
      std::string_view rest = name;
      const std::string_view word = TakeWord(rest);
      if (Trimmed(rest).empty() || std::ranges::count(kLevels, word) == 0) {
        return name;
      }
      name = Trimmed(rest);
    }
  }

  std::string_view line_;
  size_t at_ = 0;
  size_t edge_ = 0;  ///< behind the last item
  std::vector<LineItem> items_;
};

}  // namespace

std::vector<LineItem> ItemsOf(std::string_view line) {
  return Scanner(line).Items();
}

}  // namespace isoloss::foreign
