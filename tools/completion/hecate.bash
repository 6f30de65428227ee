# Completion of hecate's tools for bash: source it, or install it as TOOL in share/bash-completion/completions. What there is to
# complete the tools say themselves (TOOL [COMMAND] --help=complete), so this never falls behind them. bash 3.2 or later.

_hecate() {
  local tool=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  local rows more command=() row kind value values found= IFS=$'\n' word
  COMPREPLY=()
  rows=$("$tool" --help=complete 2>/dev/null) || return 0
  # The command, of one word or two: those that the tool names.
  for ((row = 1; row < COMP_CWORD && row < 3; row++)); do
    word=${command[0]:+${command[0]} }${COMP_WORDS[row]}
    case $'\n'$rows in *$'\n'"command"$'\t'"$word"$'\t'*) command+=("${COMP_WORDS[row]}") ;; *) break ;; esac
  done
  local all=$rows
  [ ${#command[@]} -eq 0 ] || rows=$("$tool" "${command[@]}" --help=complete 2>/dev/null)
  # "--option=value" comes as three words, as one where "=" is taken out of COMP_WORDBREAKS.
  local option=
  case $current in --*=*) before=${current%%=*} option=$before= current=${current#*=} ;; esac
  if [ "$current" = = ]; then current=; elif [ "$before" = = ]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi
  for row in $rows; do
    case $row in option$'\t'"$before"$'\t'*) found=$row ;; esac
  done
  if [ -n "$found" ]; then
    kind=$(cut -f 3 <<<"$found") value=$(cut -f 4 <<<"$found") values=$(cut -f 6 <<<"$found")
    if [ "$kind" != flag ]; then
      local head=$option tail=$current
      case $value in *,*) case $current in *,*) head=$option${current%,*}, tail=${current##*,} ;; esac ;; esac
      COMPREPLY=($(compgen -P "$head" -W "${values// /$'\n'}" -- "$tail"))
      [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -P "$option" -f -- "$current"))
      return 0
    fi
  fi
  values=
  case $current in
  -*)
    values=$(cut -f 1,2 <<<"$rows" | sed -n 's/^option\t//p')$'\n'--help$'\n'--version
    COMPREPLY=($(compgen -W "$values" -- "$current"))
    ;;
  *)
    # Commands of one word here, the second word of those behind it.
    word=${command[0]:-}
    [ ${#command[@]} -ne $((COMP_CWORD - 1)) ] ||
      values=$(cut -f 1,2 <<<"$all" | sed -n "s/^command\t${word:+$word }\([^ ]*\)\$/\1/p")
    COMPREPLY=($(compgen -W "$values" -- "$current") $(compgen -f -- "$current"))
    ;;
  esac
}
complete -o filenames -F _hecate hecate-sim hecate-run hecate-trace hecate-validate hecate-bench
