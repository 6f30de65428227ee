# Writes OUT, a C file that holds STYLE and SCRIPT as bytes (runtime/report/page.h).
set(body "/* Made by runtime/report/embed.cmake. */\n#include \"runtime/report/page.h\"\n")
foreach(what style script)
  string(TOUPPER ${what} file)
  file(READ ${${file}} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND body "\nconst char hec_page_${what}[] = {${bytes}0};\n"
                     "const unsigned long hec_page_${what}_bytes = sizeof hec_page_${what} - 1;\n")
endforeach()
file(WRITE ${OUT} "${body}")
