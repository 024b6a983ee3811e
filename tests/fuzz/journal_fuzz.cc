// Any bytes as a journal: refused with an Error, or rows that can be written
// again.
//
// If the first byte is even the rest is the file. If it is odd the rest is cut
// into records, each a byte for its kind, two for its length and a payload,
// that get heads and CRCs which fit: the decoder behind those is reached.
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/entry_point.h"
#include "isoloss/base/crc32c.h"
#include "isoloss/base/error.h"
#include "isoloss/runlog/journal.h"
#include "isoloss/runlog/rows.h"
#include "runlog/sample_log.h"

namespace {

using namespace isoloss;          // NOLINT(google-build-using-namespace)
using namespace isoloss::runlog;  // NOLINT(google-build-using-namespace)

std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

template <typename T>
std::string Raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

std::string Framed(std::string_view records) {
  std::string file = "isolossJ" + Raw(kJournalVersion);
  file += Raw(Crc32c(AsBytes(file)));
  for (uint64_t number = 0; records.size() >= 3; ++number) {
    uint16_t length = 0;
    std::memcpy(&length, records.data() + 1, sizeof(length));
    const std::string_view payload = records.substr(3, length);
    std::string record = Raw(static_cast<uint32_t>(payload.size()));
    record += Raw(uint32_t{static_cast<unsigned char>(records[0])});
    record += Raw(number);
    record += payload;
    file += record + Raw(Crc32c(AsBytes(record)));
    records.remove_prefix(3 + payload.size());
  }
  return file;
}

void Check(std::string_view file) {
  try {
    const JournalContent content = ParseJournal(AsBytes(file), "journal");
    ISOLOSS_ASSERT(content.valid_bytes + content.torn_bytes == file.size());
    ISOLOSS_ASSERT(content.note.empty() == (content.torn_bytes == 0));
    // What is accepted can be written, and is then the same.
    const std::vector<std::byte> rows = EncodeRows(content.log);
    ISOLOSS_ASSERT(EncodeRows(DecodeRows(rows)) == rows);
    ISOLOSS_ASSERT(FirstDifference(content.log, content.log).empty());
  } catch (const Error& error) {
    ISOLOSS_ASSERT(error.kind() == ErrorKind::kFormat);
  }
}

std::string Record(char kind, const std::vector<std::byte>& payload) {
  std::string record(1, kind);
  record += Raw(static_cast<uint16_t>(payload.size()));
  record.append(reinterpret_cast<const char*>(payload.data()), payload.size());
  return record;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1,
                              size - 1);
  if (data[0] % 2 == 0) {
    Check(rest);
  } else {
    Check(Framed(rest));
  }
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  const std::string raw(1, '\0');
  const std::string framed(1, '\1');
  Provenance provenance = SampleLog().provenance;
  provenance.resolved_recipe = "short";
  std::string records = Record(1, EncodeProvenance(provenance));
  for (int64_t step = 1; step <= 5; ++step) {
    RunLog rows = SampleRows(step);
    rows.tensors = {};
    records += Record(2, EncodeRows(rows));
  }
  RunLog tensors;
  tensors.tensors = SampleRows(1).tensors;
  return {framed + records, raw + Framed(records),
          framed + Record(2, EncodeRows(tensors)),
          framed + Record(2, EncodeRows(RunLog()))};
}
