#include "isoloss/runlog/reader.h"

#include "isoloss/runlog/schema_reader.h"
#include "isoloss/runlog/sealed_file.h"

namespace isoloss::runlog {

RunLog ReadRunLog(const std::filesystem::path& path) {
  RunLog log;
  ReadSealedFile(path, kRunLogFile, [&](const h5::Handle& file) {
    SchemaReader reader(file, path);
    VisitRunLog(reader, log);
  });
  return log;
}

}  // namespace isoloss::runlog
