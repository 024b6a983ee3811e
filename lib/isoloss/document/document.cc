#include "isoloss/document/document.h"

#include <algorithm>
#include <iterator>

namespace isoloss::document {

void Document::PutObject(std::string key, Document object) {
  std::vector<Document> one;
  one.push_back(std::move(object));
  parts_.push_back(Member{std::move(key), std::move(one), false});
}

void Document::PutInterval(std::string key, double estimate, double lower,
                           double upper) {
  Document interval;
  interval.Put("estimate", estimate);
  interval.Put("lower", lower);
  interval.Put("upper", upper);
  PutObject(std::move(key), std::move(interval));
}

void Document::Append(Document other) {
  std::ranges::move(other.parts_, std::back_inserter(parts_));
}

}  // namespace isoloss::document
